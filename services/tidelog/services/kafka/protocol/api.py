"""The seam between connections and APIs: a request as a `Call`, and an `Api` that answers it in two steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from kio.schema.errors import ErrorCode

from tidelog.services.broker.api.request_context import RequestContext

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Answer: TypeAlias = "Sequence[Buffer] | None"
"""The body of an answer, without its header, as buffers that are written one after the other. None: the client waits
for no answer (Produce with acks=0)."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request. `listener`: the name of the listener that the client came in by; `client_host`: its address; `body`:
    the frame after the header, which stays valid as long as it is referenced; `errors`: how often its
    answer has each code, by name, for metrics."""

    api_key: int
    version: int
    correlation_id: int
    context: RequestContext
    listener: str
    client_host: str
    body: memoryview
    errors: Counter[str] = field(default_factory=Counter)

    def count_errors(self, codes: Iterable[ErrorCode]) -> None:
        """Note the error codes of the answer."""
        for code in codes:
            if code is not ErrorCode.none:
                self.errors[code.name.upper()] += 1


class Api(Protocol):
    """One API of the protocol, in all its versions. `protocol.api_table` says which these are."""

    async def answer(self, call: Call) -> Awaitable[Answer]:
        """Place the request, and return what gives its answer.

        The connection places its next request once this returns, so the order of two requests is fixed then. It starts
        the returned awaitable at once and does not wait for it. Errors of the request are part of the answer. Raises
        `Malformed`, here or in the awaitable; then the connection ends.
        """


class Malformed(Exception):
    """The bytes of a request are not what the protocol says. Its connection ends, since the next request cannot be
    found or trusted."""
