"""Turns a batch of appends into one WAL entry: its table, sorted by partition and offset, its spans and producer marks.

Pure, and run in a thread. Columns are built for the whole entry; only appends are looped over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.services.broker.api.fetch import SentBatch
from tidelog.services.broker.shard.append_buffer import Append
from tidelog.services.broker.shard.sent_entry import BATCH_OVERHEAD_BYTES, SentEntry
from tidelog.storage.layout import TopicPartition
from tidelog.storage.records import WAL_SCHEMA
from tidelog.storage.wal.wal_entry import PreparedEntry, ProducerMark, Span, WalCodec, WalHeader

_Int64s = npt.NDArray[np.int64]

SMALL_CHUNK_BYTES = 256 * 1024
"""Chunks that are smaller on average are copied into one, which is cheaper than to write and read each."""

PLACE_BYTES = 12
"""Per record: the partition and the offset."""


@dataclass(frozen=True)
class SpanDraft:
    """A span with its partition's latest timestamp."""

    span: Span
    timestamp_ms_max: int


@dataclass(frozen=True)
class EntryDraft:
    """The content of an entry. `held_bytes`: the memory that `records` keeps alive. `sent`: its batches as their
    producers sent them, None if none came so."""

    records: pa.Table
    spans: tuple[SpanDraft, ...]
    producers: tuple[ProducerMark, ...]
    held_bytes: int
    sent: SentEntry | None = None


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """An entry as readers get it (`draft`) and as it is written (`prepared`)."""

    draft: EntryDraft
    prepared: PreparedEntry


def encoded_batch(codec: WalCodec, header: WalHeader, appends: Sequence[Append]) -> EncodedBatch:
    draft = entry_draft(appends)
    spans = tuple(drafted.span for drafted in draft.spans)
    whole = replace(header, spans=spans, producers=draft.producers)
    return EncodedBatch(draft, PreparedEntry(whole, codec.encode(whole, draft.records)))


def entry_draft(appends: Sequence[Append]) -> EntryDraft:
    """The entry of `appends`, which are in the order of their offsets within each partition."""
    if len(appends) == 1:
        return _draft_of_one(appends[0])
    ordered = sorted(appends, key=lambda append: append.partition.topic_partition)
    counts = np.fromiter((append.count for append in ordered), np.int64, len(ordered))
    first_rows = np.cumsum(counts) - counts
    held_bytes = sum(append.held_bytes for append in ordered)
    payload = pa.concat_tables(append.records for append in ordered)
    if held_bytes < SMALL_CHUNK_BYTES * len(ordered):
        payload = payload.combine_chunks()
        held_bytes = payload.nbytes
    records = _with_places(payload, ordered, counts, first_rows)
    marks = tuple(append.mark for append in ordered if append.mark)
    placed = records.nbytes - payload.nbytes
    return EntryDraft(records, _spans(ordered, first_rows.tolist()), marks, held_bytes + placed, _sent(ordered))


def _draft_of_one(append: Append) -> EntryDraft:
    """The entry of an idle log: nothing to sort or join, and its producer waits for this alone."""
    place, count = append.partition.topic_partition, append.count
    columns: list[Any] = [
        pa.array(np.full(count, place.partition, np.int32)),
        pa.array(np.arange(append.base_offset, append.base_offset + count)),
        *append.records.columns,
    ]
    held_bytes = append.held_bytes + count * PLACE_BYTES
    return EntryDraft(
        pa.Table.from_arrays(columns, schema=WAL_SCHEMA),
        _spans((append,), (0,)),
        (append.mark,) if append.mark else (),
        held_bytes,
        _sent((append,)),
    )


def _sent(ordered: Sequence[Append]) -> SentEntry | None:
    batches: defaultdict[TopicPartition, list[SentBatch]] = defaultdict(list)
    size_bytes = 0
    for append in ordered:
        if append.sent is not None:
            batches[append.partition.topic_partition].append(SentBatch(append.base_offset, append.count, append.sent))
            size_bytes += len(append.sent) + BATCH_OVERHEAD_BYTES
    return SentEntry(dict(batches), size_bytes) if batches else None


def _with_places(payload: pa.Table, ordered: Sequence[Append], counts: _Int64s, first_rows: _Int64s) -> pa.Table:
    """`payload` with the columns partition and offset in front (`WAL_SCHEMA`)."""
    bases = np.fromiter((append.base_offset for append in ordered), np.int64, len(ordered))
    numbers = np.fromiter((append.partition.topic_partition.partition for append in ordered), np.int32, len(ordered))
    offsets = np.arange(payload.num_rows) + np.repeat(bases - first_rows, counts)
    columns: list[Any] = [
        pa.array(np.repeat(numbers, counts)),
        pa.array(offsets),
        *payload.columns,
    ]
    return pa.Table.from_arrays(columns, schema=WAL_SCHEMA)


def _spans(ordered: Sequence[Append], first_rows: Sequence[int]) -> tuple[SpanDraft, ...]:
    spans: list[SpanDraft] = []
    for append, first_row in zip(ordered, first_rows, strict=True):
        last = spans[-1] if spans else None
        if last and last.span.topic_partition == append.partition.topic_partition:
            assert last.span.next_offset == append.base_offset, "offsets in the WAL are dense (inv. 4)"
            count = last.span.count + append.count
            span = Span(last.span.topic_partition, last.span.base_offset, count, last.span.first_row)
            spans[-1] = SpanDraft(span, max(last.timestamp_ms_max, append.timestamp_ms_max))
        else:
            span = Span(append.partition.topic_partition, append.base_offset, append.count, first_row)
            spans.append(SpanDraft(span, append.timestamp_ms_max))
    return tuple(spans)
