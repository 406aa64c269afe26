"""Records for tests: tables of the schemas, equal for equal arguments, and Hypothesis strategies for unusual ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tidelog.storage.layout import TopicPartition
from tidelog.storage.records import HEADERS, RECORD_SCHEMA, TIMESTAMP, TIMESTAMP_MS_MAX, WAL_SCHEMA
from tidelog.storage.wal.wal_entry import EntryKind, ProducerMark, Span, WalHeader

Payload = tuple[bytes | None, bytes | None, list[dict[str, Any]] | None]
"""Key, value, headers."""

WEB = TopicPartition("11" * 16, 0)
WEB_1 = TopicPartition("11" * 16, 1)
SHOP = TopicPartition("22" * 16, 0)


def payload(offset: int) -> Payload:
    headers = [{"key": "trace", "value": b"%x" % offset}] if offset % 3 == 0 else None
    return (b"k%d" % offset if offset % 2 else None, b"value of %d" % offset, headers)


def record_table(offsets: Sequence[int], payloads: Sequence[Payload] | None = None) -> pa.Table:
    """A table with `RECORD_SCHEMA`. The content of a record depends on its offset unless given; its timestamp is 1,000
    times the offset."""
    rows = [payload(offset) for offset in offsets] if payloads is None else payloads
    keys, values, headers = ([row[column] for row in rows] for column in range(3))
    arrays = [
        pa.array(offsets, pa.int64()),
        pa.array([offset * 1_000 % TIMESTAMP_MS_MAX for offset in offsets], TIMESTAMP),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers, HEADERS),
    ]
    return pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)


def wal_table(spans: Sequence[Span], payloads: Sequence[Payload] | None = None) -> pa.Table:
    """A table with `WAL_SCHEMA` and the rows that `spans` describe."""
    offsets = [offset for span in spans for offset in range(span.base_offset, span.next_offset)]
    records = record_table(offsets, payloads)
    places = [span.topic_partition for span in spans for _ in range(span.count)]
    partitions = pa.array([place.partition for place in places], pa.int32())
    return pa.Table.from_arrays([partitions, *records.columns], schema=WAL_SCHEMA)


def spans_of(*parts: tuple[TopicPartition, int, int]) -> tuple[Span, ...]:
    """Spans of (partition, base offset, count), one after the other."""
    spans, first_row = [], 0
    for place, base_offset, count in parts:
        spans.append(Span(place, base_offset, count, first_row))
        first_row += count
    return tuple(spans)


def records_header(
    spans: Sequence[Span], *, shard: int = 0, seq: int = 0, epoch: int = 1, producers: Sequence[ProducerMark] = ()
) -> WalHeader:
    return WalHeader(
        kind=EntryKind.RECORDS if spans else EntryKind.START,
        shard=shard,
        seq=seq,
        epoch=epoch,
        writer_id="writer",
        entry_id=f"{seq:032x}",
        written_at_ms=1_760_000_000_000 + seq,
        spans=tuple(spans),
        producers=tuple(producers),
    )


# ---- strategies

_bytes = st.none() | st.binary(max_size=40)
_headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(st.characters(codec="utf-8"), max_size=5), "value": _bytes}), max_size=3
)
payloads = st.tuples(_bytes, _bytes, _headers)

_places = st.builds(TopicPartition, st.sampled_from(["a" * 32, "b" * 32, "c" * 32]), st.integers(0, 2**31 - 1))


@st.composite
def span_lists(draw: st.DrawFn) -> tuple[Span, ...]:
    """Spans of an entry; at least one."""
    places = draw(st.lists(_places, min_size=1, max_size=6, unique=True))
    parts = [(place, draw(st.integers(0, 2**62)), draw(st.integers(1, 8))) for place in sorted(places)]
    return spans_of(*parts)


@st.composite
def marks_of(draw: st.DrawFn, spans: Sequence[Span]) -> tuple[ProducerMark, ...]:
    """Marks of producers for some of the spans."""
    marks = []
    for span in draw(st.lists(st.sampled_from(spans), max_size=3)):
        first = draw(st.integers(0, 2**31 - 1))
        producer = draw(st.text(max_size=10))
        marks.append(
            ProducerMark(span.topic_partition, producer, draw(st.integers(0, 99)), first, first, span.base_offset)
        )
    return tuple(marks)
