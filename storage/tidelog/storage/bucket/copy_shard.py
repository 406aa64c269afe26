"""Copies one shard so that its log and its partitions meet: the cut.

1. The floor is read, at t0. Everything below it is in manifests that can be read from now on (inv. 6).
2. The journal is read for the topics of this shard. A topic made later has all of its records in entries from t0 on.
3. The partitions' manifests are read and copied with what they name. They reach at least up to the floor of t0; and
   what they hold was in the log by then.
4. The log is listed from the floor of t0 on, and copied. It reaches at least as far as the manifests do.

So by 1 and 3 nothing is missing between manifests and log (inv. 5), and by 3 and 4 no manifest reaches beyond the log,
which would leave a gap in it when a broker goes on from there (inv. 4). All that was acknowledged before t0 is in one
of the two (inv. 1).

Between 1 and 4 entries above the floor of t0 may be archived and, a grace later, deleted, and a stalled writer may make
such a number anew. So if the floor has moved and more than the least grace a broker may have is over since t0, or
an entry is not what was listed, the cut is made again: most of it is there already then.

Entries that lack though the floor has not moved are lost. They are named, and the rest is copied: the copy lacks what
the source lacks, and is repaired as that is (`repair`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tidelog.storage.bucket.copy_transfer import Changed, Transfer
from tidelog.storage.errors import Conflict, NotFound, Unavailable
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import floor_key, number_of, wal_prefix, wal_suffix
from tidelog.storage.object_store import ObjectInfo, list_all
from tidelog.storage.runtime import Clock
from tidelog.storage.wal import Wal
from tidelog.storage.wal_codec import ParquetWalCodec

CUTS_MAX = 8


class ShardCopy:
    """One shard on its way. `publish` copies its partitions (`copy_partition`), as the journal has them by then.
    `grace_s`: nothing is deleted sooner after it left the log."""

    def __init__(
        self, transfer: Transfer, shard: int, publish: Callable[[int], Awaitable[None]], clock: Clock, grace_s: float
    ) -> None:
        self._transfer = transfer
        self._shard = shard
        self._publish = publish
        self._clock = clock
        self._grace_s = grace_s
        self._wal = Wal(transfer.source, shard, ParquetWalCodec())

    async def cut(self) -> int:
        """Copy the shard; the number after its last entry. Raises `Unavailable` if the source deletes faster than it
        is copied, `Conflict` if something else writes to the target, `Corrupt` if the floor is damaged."""
        for _ in range(CUTS_MAX):
            try:
                end = await self._try()
            except (NotFound, Changed):
                continue
            if end is not None:
                return end
        raise Unavailable(
            f"shard {self._shard} is archived and deleted faster than it is copied: name the brokers' delete.grace.ms "
            "with --grace, or raise it"
        )

    async def _try(self) -> int | None:
        began_s = self._clock.monotonic()
        floor = await self._wal.floor()
        await self._publish(self._shard)
        entries = await self._listed(floor.number)
        moved = (await self._wal.floor()).number > floor.number
        if not self._is_dense(entries, floor.number):
            if moved:
                return None
            self._name_lost(entries, floor.number)
        if moved and self._clock.monotonic() - began_s > self._grace_s:
            return None
        await self._copy_entries(entries)
        if floor.version is not None:
            target = Wal(self._transfer.target, self._shard, ParquetWalCodec())
            await target.advance_floor(floor.number, floor.epoch)
        await self._prune({info.key for info in entries})
        return max([floor.number, *(self._number_of(info) + 1 for info in entries[-1:])])

    async def _listed(self, floor: int) -> Sequence[ObjectInfo]:
        start_after = self._wal.log.before(floor)
        listed = list_all(self._transfer.source, wal_prefix(self._shard), start_after=start_after)
        return [info async for info in listed if self._number(info.key) is not None]

    def _number(self, key: str) -> int | None:
        return number_of(key, wal_prefix(self._shard), wal_suffix())

    def _number_of(self, info: ObjectInfo) -> int:
        """Of an entry that was listed."""
        number = self._number(info.key)
        assert number is not None, info.key
        return number

    def _name_lost(self, entries: Sequence[ObjectInfo], floor: int) -> None:
        expected = floor
        for info in entries:
            number = self._number_of(info)
            if number > expected:
                text = f"is missing, with all up to entry {number - 1}: see `tidelog bucket repair`"
                self._transfer.is_damaged(self._wal.key(expected), text)
            expected = number + 1

    def _is_dense(self, entries: Sequence[ObjectInfo], floor: int) -> bool:
        """Deletion under way leaves a gap at the beginning of a listing; it is no gap of the log."""
        return [self._number(info.key) for info in entries] == list(range(floor, floor + len(entries)))

    async def _copy_entries(self, entries: Sequence[ObjectInfo]) -> None:
        present = await self._transfer.sizes(wal_prefix(self._shard))

        async def copy(info: ObjectInfo) -> None:
            if info.key not in present:
                await self._transfer.copy(info.key, info.size, version=info.version)
            elif await self._transfer.same(info):
                self._transfer.skip(1, info.size)
            else:
                raise Conflict(
                    f"{self._transfer.target.url} has another {info.key} than the source: a broker has written there. "
                    "Take an empty bucket for the copy"
                )

        async for _ in in_order(entries, copy, at_once=self._transfer.at_once):
            pass

    async def _prune(self, kept: set[str]) -> None:
        """Entries of an earlier copy that lie below the floor by now, and an index, which no copy has."""
        floor = floor_key(self._shard)
        for key in await self._transfer.sizes(wal_prefix(self._shard)):
            if key != floor and key not in kept:
                await self._transfer.delete(key)
