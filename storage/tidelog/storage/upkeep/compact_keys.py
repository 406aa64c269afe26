"""The first pass of a compaction: reads the keys of all its segments and finds the records to remove.

A record is removed if a later one of its partition has its key, or if it is a tombstone whose time is over
(`compact_plan`). A record is identified by its **row**, its place in the order of the plan's segments (`RowSet`),
whatever gaps the offsets have. A record without a key, which a topic may hold if it was
not always compacted, stays for ever, because no record can replace it.

All partitions are searched together: the partition's number stands before each key, so equal keys of two partitions are
two keys.

Every byte of a segment is read here and must match its sha256 in the manifest (`segment_input`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.in_flight import in_thread
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.upkeep.compact_plan import CompactPlan
from tidelog.storage.upkeep.key_spill import HashKeys, Keys, KeySpill, newest_rows
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.run_merge import pieces_of
from tidelog.storage.upkeep.run_rewrite import Rewriter

SPILL_SHARE = 8
"""Keys in memory take at most this fraction (one in 8) of it: splitting them, or finding the newest of each, takes
about four times their size."""
READERS = 4
"""The keys are read in pieces as small as if so many runs were merged."""

Mask = npt.NDArray[np.bool_]


async def rows_that_go(rewriter: Rewriter, plan: CompactPlan, hash_keys: HashKeys) -> RowSet:
    """The rows of `plan` to remove. It takes about the memory of `rewriter`, plus one bit per record. Raises
    `NotFound`, `Corrupt`, `Unavailable`."""
    search = _Search(rewriter, plan, hash_keys)
    try:
        for segment in plan.segments:
            await search.read(segment)
        await search.compare()
    finally:
        search.spill.close()
    return search.going


class _Search:
    """One reading of all keys."""

    def __init__(self, rewriter: Rewriter, plan: CompactPlan, hash_keys: HashKeys) -> None:
        self._executor = rewriter.executor
        self._reading = rewriter.reading(READERS)
        self._ripe = plan.ripe
        self.going = RowSet(plan.segments)
        self.spill = KeySpill(rewriter.spill_folder, rewriter.memory_bytes // SPILL_SHARE, hash_keys)

    async def read(self, segment: TopicSegment) -> None:
        holds_ripe = any(
            one.begin_offset <= span.last_offset and span.base_offset < one.end_offset
            for span in segment.spans
            for one in self._ripe.get(span.partition, ())
        )
        columns = ["partition", "offset", "key", "value"] if holds_ripe else ["partition", "key"]
        begin = self.going.first_row(segment)
        async with aclosing(self._reading.rows(segment, columns)) as tables:
            async for first_row, records in tables:
                await in_thread(self._executor, self._take, begin + first_row, records, holds_ripe)

    async def compare(self) -> None:
        """Compare the keys part by part, so that other users of the thread run in between."""
        parts = self.spill.superseded()
        while (rows := await in_thread(self._executor, next, parts, None)) is not None:
            self.going.add(rows)

    def _take(self, first_row: int, records: pa.Table, holds_ripe: bool) -> None:
        """Within `records`, only the newest record of each key is kept for the comparison with others."""
        rows = np.arange(first_row, first_row + records.num_rows)
        if holds_ripe:
            self.going.add(rows[self._ripe_tombstones(records)])
        with_key = np.asarray(records["key"].is_valid())
        distinct, newest, others = newest_rows(_keys_of_partitions(records.filter(pa.array(with_key))), rows[with_key])
        self.going.add(others)
        self.spill.add(distinct, newest)

    def _ripe_tombstones(self, records: pa.Table) -> Mask:
        within = np.concatenate([np.zeros(0, np.bool_), *self._within(records)])
        no_key, no_value = (np.asarray(records[name].is_null()) for name in ("key", "value"))
        return cast(Mask, within & no_value & ~no_key)

    def _within(self, records: pa.Table) -> Iterator[Mask]:
        """For each piece of a partition: which of its records lie in a ripe stretch."""
        for partition, rows, _ in pieces_of(records):
            offsets = rows.column("offset").to_numpy()
            within = np.zeros(len(offsets), np.bool_)
            for one in self._ripe.get(partition, ()):
                first, end = np.searchsorted(offsets, [one.begin_offset, one.end_offset])
                within[first:end] = True
            yield within


def _keys_of_partitions(records: pa.Table) -> Keys:
    """The keys, each after the four bytes of its partition's number."""
    numbers = records["partition"].to_numpy().astype(">i4")
    prefixes = pa.Array.from_buffers(pa.binary(4), len(numbers), [None, pa.py_buffer(numbers.tobytes())])
    join: Any = pc.binary_join_element_wise  # the stubs know only strings
    return cast(Keys, join(prefixes.cast(pa.binary()), records["key"].combine_chunks(), b""))
