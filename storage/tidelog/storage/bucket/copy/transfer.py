"""Transfers objects from one bucket to another: several at a time, in bounded memory, and counted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.storage.bucket.finding import Finding, error
from tidelog.storage.errors import Conflict
from tidelog.storage.in_flight import WeightedSemaphore
from tidelog.storage.layout import number_of
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all

AT_ONCE = 16
MEMORY_BYTES = 512 * 1024 * 1024
DAMAGED_MAX = 1_000
"""So many faults of the source are named in a report."""


@dataclass
class CopyReport:
    """The counts of a copy so far. `skipped`: objects that the target had already. `damaged`: faults of the source,
    which the copy has as well; `more_damaged`: how often others were met, beyond `DAMAGED_MAX`."""

    copied: int = 0
    copied_bytes: int = 0
    skipped: int = 0
    skipped_bytes: int = 0
    deleted: int = 0
    damaged: list[Finding] = field(default_factory=list)
    more_damaged: int = 0

    @property
    def whole(self) -> bool:
        """The source has no damage that the copy shares."""
        return not self.damaged


class Changed(Exception):
    """The source differs from its listing by now: list it again."""


class Transfer:
    """Transfers from `source` to `target`. `report` grows with it, and `on_copied` is called at every step."""

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
        self._requests = WeightedSemaphore(at_once)
        self._memory = WeightedSemaphore(memory_bytes)
        self._on_copied = on_copied

    async def sizes(self, prefix: str) -> Mapping[str, int]:
        """The objects of the target under `prefix`, with their sizes in bytes."""
        return {info.key: info.size async for info in list_all(self.target, prefix)}

    async def entries(self, prefix: str, suffix: str, first: int = 0) -> Mapping[int, ObjectInfo]:
        """The entries from number `first` on of the object log under `prefix` of the source, ascending."""
        start_after = ObjectLog(self.source, prefix, suffix).before(first)
        listed = list_all(self.source, f"{prefix}0", start_after=start_after)
        numbered = [(number_of(info.key, prefix, suffix), info) async for info in listed]
        return {number: info for number, info in numbered if number is not None}

    async def copy(self, key: str, size_bytes: int, *, version: str | None = None, sha256: str | None = None) -> None:
        """Copy an object that the target lacks. Raises `NotFound`; `Changed` if its version is not `version`;
        `Conflict` if the target has a different object of that name. Another sha256 than `sha256` is noted in the
        report."""
        async with self._requests.take(1), self._memory.take(size_bytes):
            stored = await self.source.get(key)
            if version not in (None, stored.info.version):
                raise Changed(key)
            if sha256 is not None and await asyncio.to_thread(_digest, stored.data) != sha256:
                self.note_damage(error(key, "is not the segment its manifest names: another sha256"))
            try:
                await self.target.create(key, stored.data)
            except Conflict:
                if (await self.target.get(key)).data != stored.data:
                    raise self.differs(key) from None
        self.report.copied += 1
        self.report.copied_bytes += stored.info.size
        self._on_copied()

    async def append(self, prefix: str, infos: Sequence[ObjectInfo], what: str) -> None:
        """Copy those of `infos`, the objects of a log in their order, that the target lacks under `prefix`. The last
        one that it has must be the same; `what` names the log. An interrupted copy has no gap."""
        present = await self.sizes(prefix)
        there = [info for info in infos if info.key in present]
        if there and not await self.same(there[-1]):
            raise self.differs(what)
        self.skip(len(there), sum(info.size for info in there))
        for info in infos:
            if info.key not in present:
                await self.copy(info.key, info.size)

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects that the source no longer has."""
        if keys:
            async with self._requests.take(1):
                await self.target.delete_many(keys)
            self.report.deleted += len(keys)

    def skip(self, objects: int, size_bytes: int) -> None:
        """Count objects that the target has already."""
        self.report.skipped += objects
        self.report.skipped_bytes += size_bytes
        self._on_copied()

    def note_damage(self, fault: Finding) -> None:
        """Note a fault of the source."""
        if fault in self.report.damaged:
            return
        if len(self.report.damaged) < DAMAGED_MAX:
            self.report.damaged.append(fault)
        else:
            self.report.more_damaged += 1

    async def same(self, info: ObjectInfo) -> bool:
        """Whether the target has the same bytes as the source. Raises `Changed`."""
        async with self._requests.take(1), self._memory.take(2 * info.size):
            ours = await self.source.get(info.key)
            if ours.info.version != info.version:
                raise Changed(info.key)
            return (await self.target.get(info.key)).data == ours.data

    def differs(self, what: str) -> Conflict:
        """The error for a target that something else writes to."""
        return Conflict(
            f"{self.target.url} has another {what} than the source: a broker has written there. "
            "Use an empty bucket for the copy"
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
