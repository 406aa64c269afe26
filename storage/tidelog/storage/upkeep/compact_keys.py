"""The first pass of a compaction: reads the keys of all its segments and finds the records to remove.

A record is removed if a later one has its key, or if it is a tombstone whose time is over (`compact_plan`). A record is
identified by its **row**, its place in the order of the plan's segments, so the set of rows takes one bit per record,
whatever gaps the offsets have. A record without a key, which a topic may hold if it was not always compacted, stays for
ever, because no record can replace it.

The last record of a plan always stays: no pass has processed it yet, so it is no ripe tombstone. So every offset below
the cold end has a record at or above it, and no reader reaches an offset after which nothing follows.

Every byte of a segment is read here and must match the sha256 in the manifest: a compaction must not copy damaged or
foreign records into a segment that passes for sound (`tidelog bucket attest`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_format import MAGIC, Footer, decode_rows
from tidelog.storage.segments.segment_codec import SEGMENT_FLAVOR
from tidelog.storage.upkeep.compact_plan import CompactPlan, Stretch
from tidelog.storage.upkeep.in_thread import in_thread
from tidelog.storage.upkeep.key_spill import HashKeys, KeySpill, newest_rows, spread_hash
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.segment_input import RowGroups, read_end, read_stretches, stretches

SPILL_SHARE = 8
"""Keys in memory take at most this fraction (one in 8) of it: splitting them, or finding the newest of each, takes
about four times their size."""
READ_SHARE = 16
"""The raw bytes decoded at a time take this fraction (one in 16) of the memory; as much is being fetched."""


@dataclass(frozen=True)
class CompactMeans:
    """The resources of a compaction. It takes about `memory_bytes`, plus one bit per record."""

    store: ObjectStore
    executor: Executor | None
    memory_bytes: int
    spill_folder: Path
    hash_keys: HashKeys = spread_hash


async def rows_that_go(means: CompactMeans, plan: CompactPlan) -> RowSet:
    """The rows of `plan` to remove. Raises `NotFound`, `Corrupt`, `Unavailable`."""
    search = _Search(means, plan)
    try:
        for segment in plan.segments:
            await search.read(segment)
        await search.compare()
    finally:
        search.spill.close()
    return search.going


class _Search:
    """One reading of all keys."""

    def __init__(self, means: CompactMeans, plan: CompactPlan) -> None:
        self._means = means
        self._ripe = plan.ripe
        self._next_row = 0
        self.going = RowSet(sum(segment.records for segment in plan.segments))
        self.spill = KeySpill(means.spill_folder, means.memory_bytes // SPILL_SHARE, means.hash_keys)

    async def read(self, segment: Segment) -> None:
        end = await read_end(self._means.store, segment)
        digest = hashlib.sha256(MAGIC)
        runs = stretches(end.footer.row_groups, self._means.memory_bytes // READ_SHARE)
        async with aclosing(read_stretches(self._means.store, segment, runs)) as reading:
            async for groups, data in reading:
                await in_thread(self._means.executor, digest.update, data)
                await in_thread(self._means.executor, self._take, segment, end.footer, groups, data)
        digest.update(end.data)
        if digest.hexdigest() != segment.sha256:
            raise Corrupt(segment.key, "is not the segment its manifest names: another sha256")

    async def compare(self) -> None:
        """Compare the keys part by part, so that other users of the thread run in between."""
        parts = self.spill.superseded()
        while (rows := await in_thread(self._means.executor, next, parts, None)) is not None:
            self.going.add(rows)

    def _take(self, segment: Segment, footer: Footer, groups: RowGroups, data: memoryview) -> None:
        """Within `groups`, only the newest record of each key is kept for the comparison with others."""
        holds_ripe = any(
            s.begin_offset <= segment.last_offset and segment.base_offset < s.end_offset for s in self._ripe
        )
        columns = ["offset", "key", "value"] if holds_ripe else ["key"]
        records = decode_rows(segment.key, SEGMENT_FLAVOR, footer, groups, data, columns)
        rows = np.arange(self._next_row, self._next_row + records.num_rows)
        self._next_row += records.num_rows
        if holds_ripe:
            self.going.add(rows[_ripe_tombstones(records, self._ripe)])
        keys = records.column("key")
        if keys.null_count:
            rows = rows[np.asarray(keys.is_valid())]
            keys = keys.drop_null()
        distinct, newest, others = newest_rows(keys, rows)
        self.going.add(others)
        self.spill.add(distinct, newest)


def _ripe_tombstones(records: pa.Table, ripe: Sequence[Stretch]) -> npt.NDArray[np.bool_]:
    offsets = records.column("offset").to_numpy()
    within = np.zeros(len(offsets), np.bool_)
    for stretch in ripe:
        within[np.searchsorted(offsets, stretch.begin_offset) : np.searchsorted(offsets, stretch.end_offset)] = True
    no_key, no_value = (np.asarray(records.column(name).is_null()) for name in ("key", "value"))
    tombstones: npt.NDArray[np.bool_] = within & no_value & ~no_key
    return tombstones
