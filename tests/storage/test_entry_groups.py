"""Row groups of WAL entries: a topic or partition that is large enough has its own, and the archiver can copy it."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.record_tables import records_header, spans_of, wal_table

from tidelog.storage.layout import TopicPartition
from tidelog.storage.wal import entry_groups
from tidelog.storage.wal.entry_groups import row_group_ends
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import Span

VALUE_BYTES = 100


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_groups, "TOPIC_BYTES", 1_000)
    monkeypatch.setattr(entry_groups, "PARTITION_BYTES", 4_000)
    monkeypatch.setattr(entry_groups, "ROW_GROUP_RAW_BYTES", 20_000)


def table(spans: tuple[Span, ...]) -> pa.Table:
    rows = sum(span.count for span in spans)
    return wal_table(spans, [(None, bytes(VALUE_BYTES), None)] * rows)


def place(topic: int, partition: int) -> TopicPartition:
    return TopicPartition(f"{topic:032x}", partition)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 90)), min_size=1, max_size=12))
def test_a_row_group_holds_one_large_topic_or_several_small_ones(parts: list[tuple[int, int, int]]) -> None:
    named = {(topic, partition): count for topic, partition, count in parts}
    spans = spans_of(*((place(*where), 5, count) for where, count in sorted(named.items())))
    ends = row_group_ends(spans, table(spans))
    assert list(ends) == sorted(set(ends))
    assert ends[-1] == sum(span.count for span in spans)
    rows = [span.topic_partition.topic_id for span in spans for _ in range(span.count)]
    if len(rows) * VALUE_BYTES < 2_000:
        return
    large = {topic for topic in rows if rows.count(topic) * VALUE_BYTES >= entry_groups.TOPIC_BYTES}
    for first, end in pairwise([0, *ends]):
        held = set(rows[first:end])
        assert len(held) == 1 or not held & large


def test_a_large_partition_has_row_groups_of_its_own() -> None:
    spans = spans_of((place(0, 0), 0, 3), (place(0, 1), 0, 50), (place(0, 2), 0, 3), (place(0, 3), 0, 600))
    assert row_group_ends(spans, table(spans)) == [3, 53, 56, 256, 456, 656]


def test_small_partitions_share_row_groups() -> None:
    spans = spans_of(*((place(0, n), 0, 15) for n in range(8)))
    assert row_group_ends(spans, table(spans)) == [45, 90, 120]


def test_small_topics_share_a_row_group() -> None:
    spans = spans_of((place(0, 0), 0, 2), (place(1, 0), 0, 3), (place(2, 0), 0, 20), (place(3, 0), 0, 4))
    assert row_group_ends(spans, table(spans)) == [5, 25, 29]


def test_an_entry_of_a_few_records_has_one_row_group() -> None:
    spans = spans_of((place(0, 0), 0, 2), (place(1, 0), 0, 3))
    assert row_group_ends(spans, table(spans)) == [5]


def test_the_statistics_of_a_row_group_say_what_it_holds() -> None:
    spans = spans_of((place(0, 0), 7, 50), (place(0, 1), 100, 50))
    body = ParquetWalCodec().encode(records_header(spans), table(spans))
    metadata = pq.read_metadata(pa.BufferReader(body))
    found = []
    for index in range(metadata.num_row_groups):
        columns = [metadata.row_group(index).column(column).statistics for column in (0, 1)]
        found.append([(column.min, column.max) for column in columns if column])
    assert found == [[(0, 0), (7, 56)], [(1, 1), (100, 149)]]
    fields = pq.read_schema(pa.BufferReader(body))
    assert [field.metadata[b"PARQUET:field_id"] for field in fields] == [b"1", b"2", b"3", b"4", b"5", b"6"]
