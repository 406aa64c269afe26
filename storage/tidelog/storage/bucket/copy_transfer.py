"""Objects on their way from one bucket to another: many at once, in bounded memory, and counted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.errors import Conflict
from tidelog.storage.in_flight import Room
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all

AT_ONCE = 16
MEMORY_BYTES = 512 * 1024 * 1024


@dataclass
class CopyReport:
    """What a copy did so far. `skipped`: objects that the target had already; `damaged`: what is wrong in the source,
    and so in the copy."""

    copied: int = 0
    copied_bytes: int = 0
    skipped: int = 0
    skipped_bytes: int = 0
    deleted: int = 0
    damaged: list[Finding] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """The copy is as good as its source was to be."""
        return not self.damaged


class Changed(Exception):
    """The source is not what its listing said any more: list it again."""


class Transfer:
    """From `source` to `target`. `report` grows with it, and `on_copied` is called whenever it did."""

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        *,
        at_once: int = AT_ONCE,
        memory_bytes: int = MEMORY_BYTES,
        on_copied: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self.target = target
        self.at_once = at_once
        self.report = CopyReport()
        self._requests = Room(at_once)
        self._memory = Room(memory_bytes)
        self._on_copied = on_copied

    async def sizes(self, prefix: str) -> Mapping[str, int]:
        """What the target has under `prefix`, in bytes."""
        return {info.key: info.size async for info in list_all(self.target, prefix)}

    async def copy(self, key: str, size_bytes: int, *, version: str | None = None, sha256: str | None = None) -> None:
        """Copy an object that the target has not. Raises `NotFound`; `Changed` if its version is not `version`;
        `Conflict` if the target has another of that name. That it has not `sha256` is told in the report."""
        async with self._requests.take(1), self._memory.take(size_bytes):
            stored = await self.source.get(key)
            if version not in (None, stored.info.version):
                raise Changed(key)
            if sha256 is not None and await asyncio.to_thread(_digest, stored.data) != sha256:
                self.is_damaged(key, "is not the segment its manifest names: another sha256")
            try:
                await self.target.create(key, stored.data)
            except Conflict:
                if (await self.target.get(key)).data != stored.data:
                    raise Conflict(
                        f"{self.target.url} has another {key} than the source: something else writes there, take an "
                        "empty bucket"
                    ) from None
        self.report.copied += 1
        self.report.copied_bytes += stored.info.size
        self._on_copied()

    async def replace(self, key: str, size_bytes: int, *, sha256: str) -> None:
        """Copy an object of which the target has a part, or something else."""
        await self.target.delete(key)
        await self.copy(key, size_bytes, sha256=sha256)

    async def delete(self, key: str) -> None:
        """Remove what the source has not any more."""
        async with self._requests.take(1):
            await self.target.delete(key)
        self.report.deleted += 1

    def skip(self, objects: int, size_bytes: int) -> None:
        """The target has them already."""
        self.report.skipped += objects
        self.report.skipped_bytes += size_bytes
        self._on_copied()

    def is_damaged(self, key: str, text: str) -> None:
        """Something is wrong in the source."""
        finding = Finding(Severity.ERROR, key, text)
        if finding not in self.report.damaged:
            self.report.damaged.append(finding)

    async def same(self, info: ObjectInfo) -> bool:
        """Whether the target's object is byte by byte the source's."""
        async with self._requests.take(1), self._memory.take(2 * info.size):
            ours = await self.source.get(info.key)
            if ours.info.version != info.version:
                raise Changed(info.key)
            return (await self.target.get(info.key)).data == ours.data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
