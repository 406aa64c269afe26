"""Objects that sinks stage in the bucket before their records are appended (`tidelog.wire.staging`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.storage.object_store import Body, ByteRange
from tidelog.wire.staging import StagedPage


@dataclass(frozen=True)
class StagedRef:
    """An object of a sink. All three are checked: they cannot name another object of the bucket."""

    sink: str
    batch: int
    name: str


class Staging(Protocol):
    """Staged objects. Any broker answers, without the leader of a shard."""

    async def create(self, context: RequestContext, /, ref: StagedRef, data: Body) -> None:
        """Write the object if it is absent. Raises `AlreadyExists`, `Unavailable`."""

    async def read(self, context: RequestContext, /, ref: StagedRef, byte_range: ByteRange | None = None) -> bytes:
        """The object, or a part of it. Raises `NotFound`, `Unavailable`."""

    async def page(self, context: RequestContext, /, sink: str, after: str) -> StagedPage:
        """Some objects of `sink` behind the place `after` (``""``: from the first). Raises `Unavailable`."""

    async def delete(self, context: RequestContext, /, sink: str, before: str) -> int:
        """Delete the objects of `sink` whose places sort before `before` (``""``: all), and return their number. Safe
        to repeat. Raises `Unavailable`."""
