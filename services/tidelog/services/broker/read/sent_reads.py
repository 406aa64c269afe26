"""Reads recent records as their producers sent them: batches of Kafka's protocol that cost no encoding.

They are served instead of the entry's records, so the same rules hold: only what is committed and not archived, since
compaction and merging change only what is archived. A batch whose entry has left the memory, and a record that came by
another protocol, end the answer; if there is nothing before them, the records are read (`partition_reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.services.broker.api.fetch import FetchLimits, SentBatch
from tidelog.services.broker.shard.hot_tail import HotTail
from tidelog.services.broker.shard.partition_state import PartitionState


def read_sent(hot_tail: HotTail, state: PartitionState, offset: int, limits: FetchLimits) -> Sequence[SentBatch]:
    """The batches from the one that holds `offset` on, without a gap, within the limits; the first one always fits.
    Raises `OutOfRange`, `NotFound`."""
    state.check_readable(offset)
    if offset < state.cold_end:
        return ()
    found: list[SentBatch] = []
    records_left, bytes_left = limits.max_records, limits.max_bytes
    for batch in _batches(hot_tail, state, offset):
        records_left -= batch.count
        bytes_left -= len(batch.data)
        if found and (records_left < 0 or bytes_left < 0):
            break
        found.append(batch)
    return found


def _batches(hot_tail: HotTail, state: PartitionState, offset: int) -> Iterator[SentBatch]:
    for span in state.spans_from(offset):
        sent = hot_tail.sent(span.entry)
        if sent is None:
            return
        for batch in sent.from_offset(state.topic_partition, offset):
            yield batch
            offset = batch.next_offset
        if offset < span.next_offset:
            return
