"""One call to etcd: within its deadline, on whichever member answers, with a token, repeated only where that is safe.

A read may be repeated at will. A write is repeated only when it certainly was not taken: no connection stood, the
member had no leader, or the token was refused. All else leaves its outcome unknown, and the caller is told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import grpc.aio

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.endpoints import Endpoint, Endpoints
from tidelog.coordinator.etcd.refusals import Refusal, Verdict, refusal
from tidelog.coordinator.etcd.rpc import RANGE, Metadata, Unary
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.sightings import Sightings
from tidelog.coordinator.etcd.streams import unless_closed
from tidelog.coordinator.etcd.tokens import Tokens
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime

TRIES_MIN = 3
"""A call that may be repeated gives each try at most this part of its time, so that a silent one does not use all."""
_BACKOFF = Backoff(first_s=0.05, max_s=0.5)


class Answer(Protocol):
    """Every response of etcd has a header."""

    @property
    def header(self) -> pb.ResponseHeader: ...


_Answer = TypeVar("_Answer", bound=Answer)
_Request = TypeVar("_Request")

Send = Callable[[Endpoint, Metadata, float], Awaitable[_Answer]]
"""Ask a member and await the answer for so many seconds. Raises `AioRpcError` or `Refusal`."""


class Calls:
    """Makes calls; all of them share what is known of the members, the token and the store."""

    def __init__(self, settings: EtcdSettings, runtime: Runtime) -> None:
        self.endpoints = Endpoints(settings, runtime.entropy)
        self.tokens = Tokens(settings)
        self.sightings = Sightings()
        self.runtime = runtime
        self.timeout_s = settings.timeout_s

    @property
    def try_s(self) -> float:
        """How long one try may take where another may follow."""
        return self.timeout_s / (TRIES_MIN if len(self.endpoints) > 1 else 1)

    async def run(self, send: Send[_Answer], *, repeatable: bool, linearizable: bool = True) -> _Answer:
        """The answer to `send`. Raises what `refusals` names."""
        ends_s, failures, renewed = self._now_s() + self.timeout_s, 0, False
        while True:
            endpoint, begun = self.endpoints.current, self.sightings.mark
            try:
                answer = await self._try(endpoint, send, ends_s, repeatable)
            except Refusal as refused:
                if refused.verdict is Verdict.TOKEN_REFUSED and not renewed:
                    renewed = True
                    continue
                if refused.verdict in (Verdict.TOKEN_REFUSED, Verdict.FINAL):
                    raise refused.error from None
                self.endpoints.leave(endpoint, str(refused))
                failures += 1
                if not (repeatable or refused.verdict is Verdict.NOT_TAKEN) or not await self._may_go_on(
                    failures, ends_s
                ):
                    raise refused.error from None
            else:
                self.sightings.note(answer.header, begun=begun, linearizable=linearizable)
                return answer

    async def unary(
        self, method: Unary[_Request, _Answer], request: _Request, *, repeatable: bool, linearizable: bool = True
    ) -> _Answer:
        """The answer to one request."""

        async def send(endpoint: Endpoint, metadata: Metadata, timeout_s: float) -> _Answer:
            call = method.on(endpoint.channel)(request, timeout=timeout_s, metadata=metadata)
            return await unless_closed(self.endpoints, call)

        return await self.run(send, repeatable=repeatable, linearizable=linearizable)

    async def current_state(self) -> pb.ResponseHeader:
        """The header of a linearizable answer that carries nothing else."""
        nothing = pb.RangeRequest(key=b"\0", count_only=True)
        return (await self.unary(RANGE, nothing, repeatable=True)).header

    async def _try(self, endpoint: Endpoint, send: Send[_Answer], ends_s: float, repeatable: bool) -> _Answer:
        metadata = await self.prepare(endpoint, min(self.try_s, ends_s - self._now_s()))
        left_s = ends_s - self._now_s()
        try:
            return await send(endpoint, metadata, min(self.try_s, left_s) if repeatable else left_s)
        except grpc.aio.AioRpcError as error:
            refused = refusal(error, endpoint.target)
        except Refusal as raised:
            refused = raised
        if refused.verdict is Verdict.TOKEN_REFUSED:
            self.tokens.forget(metadata)
        raise refused

    async def prepare(self, endpoint: Endpoint, timeout_s: float) -> Metadata:
        """Connect, and get what goes with every call. Its `Refusal` says that nothing was taken: nothing was sent."""
        self._check_open()
        try:
            async with asyncio.timeout(timeout_s):
                await unless_closed(self.endpoints, endpoint.settle())
                metadata = await unless_closed(self.endpoints, self.tokens.metadata(endpoint.channel, timeout_s))
        except TimeoutError:
            silent = Unavailable(f"etcd at {endpoint.target}: no connection, or no token, in {timeout_s:.1f} s")
            raise Refusal(Verdict.NOT_TAKEN, silent) from None
        except grpc.aio.AioRpcError as error:
            refused = refusal(error, endpoint.target)
            raise Refusal(_of_something_unsent(refused.verdict), refused.error) from None
        self._check_open()  # a closed channel takes no call
        return metadata

    def _check_open(self) -> None:
        if self.endpoints.closed:
            raise Refusal(Verdict.FINAL, Unavailable("this key-value store is closed"))

    async def _may_go_on(self, failures: int, ends_s: float) -> bool:
        """Whether there is time for another try; waits if every member has failed once more."""
        wait_s = 0.0
        if failures % len(self.endpoints) == 0:
            wait_s = _BACKOFF.delay_s(failures // len(self.endpoints), self.runtime.entropy)
        if self._now_s() + wait_s >= ends_s:
            return False
        await self.runtime.clock.sleep(wait_s)
        return True

    def _now_s(self) -> float:
        return self.runtime.clock.monotonic()


def _of_something_unsent(verdict: Verdict) -> Verdict:
    return Verdict.NOT_TAKEN if verdict is Verdict.UNKNOWN else verdict
