"""Segments of a pass hold exactly the records that the manifest lacks, sorted, whether they were copied or encoded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.record_tables import records_header, spans_of, wal_table
from tests.storage.topic_segments import decode_topic_segment

from tidelog.storage.archive import row_encoding, topic_plan
from tidelog.storage.archive.segment_assembly import SegmentFacts, assembled
from tidelog.storage.archive.topic_plan import PassPlan, plan_topics
from tidelog.storage.errors import Corrupt, RecordsLost
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import Loss
from tidelog.storage.manifests.shard_values import EMPTY, ColdState, LeaderEpoch
from tidelog.storage.parquet import row_decoding
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import Footer, RowGroup, decode_footer
from tidelog.storage.parquet.row_decoding import decode_rows
from tidelog.storage.records import as_stored
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, SegmentPlace
from tidelog.storage.wal import entry_groups, stored_entry
from tidelog.storage.wal.entry_groups import row_group_ends
from tidelog.storage.wal.stored_entry import StoredEntry
from tidelog.storage.wal.wal_codec import WAL_FLAVOR, ParquetWalCodec, encode_header
from tidelog.storage.wal.wal_entry import ProducerMark, Span

FACTS = SegmentFacts("ab" * 16, archived_at_ms=9)
SHARD = 2


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_groups, "TOPIC_BYTES", 300)
    monkeypatch.setattr(entry_groups, "PARTITION_BYTES", 700)
    monkeypatch.setattr(entry_groups, "ROW_GROUP_RAW_BYTES", 3_000)
    monkeypatch.setattr(topic_plan, "COPY_BYTES_MIN", 1_000)


def place(topic: int, partition: int) -> TopicPartition:
    return TopicPartition(f"{topic:032x}", partition)


def entry(
    number: int, spans: tuple[Span, ...], value_bytes: int = 60, epoch: int = 1, marks: Sequence[ProducerMark] = ()
) -> StoredEntry:
    return StoredEntry(f"wal/0002/{number}", stored(number, spans, value_bytes, epoch, marks))


def stored(
    number: int, spans: tuple[Span, ...], value_bytes: int = 60, epoch: int = 1, marks: Sequence[ProducerMark] = ()
) -> bytes:
    rows = sum(span.count for span in spans)
    payloads = [(b"k%d" % row, b"%0*d" % (value_bytes, row), None) for row in range(rows)]
    header = records_header(spans, seq=number, epoch=epoch, producers=marks)
    return bytes(ParquetWalCodec().encode(header, wal_table(spans, payloads)))


def planned(entries: Sequence[StoredEntry], states: Mapping[TopicPartition, ColdState]) -> PassPlan:
    """The plan with an empty state for each partition that has none."""
    places = {span.topic_partition for entry in entries for span in entry.header.spans}
    return plan_topics(entries, {**dict.fromkeys(places, EMPTY), **states})


Counts = list[dict[tuple[int, int], int]]
COUNTS: st.SearchStrategy[Counts] = st.lists(
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 3)), st.integers(1, 60), min_size=1, max_size=6),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 3)), st.integers(0, 80), max_size=6))
def test_a_pass_makes_what_the_manifest_lacks(counts: Counts, archived: dict[tuple[int, int], int]) -> None:
    """`archived`: the cold ends of some partitions."""
    ends: defaultdict[tuple[int, int], int] = defaultdict(int)
    entries, tables = [], []
    for number, parts in enumerate(counts):
        spans = spans_of(*((place(*where), ends[where], count) for where, count in sorted(parts.items())))
        for where, count in parts.items():
            ends[where] += count
        entries.append(entry(number, spans))
        tables.append((spans, entries[-1].records))
    states = {place(*where): ColdState(cold_end=min(end, ends[where])) for where, end in archived.items()}
    plans = planned(entries, states).topics
    made = {}
    for plan in plans:
        at = SegmentPlace("web", plan.topic_id, SHARD)
        encoded = assembled(plan, at, entries, FACTS)
        made[plan.topic_id] = decode_topic_segment(encoded.segment, at, encoded.body)
        stamps = pc.min_max(made[plan.topic_id]["timestamp"].cast(pa.int64()))
        bounds = (encoded.segment.min_timestamp_ms, encoded.segment.max_timestamp_ms)
        assert bounds == (stamps["min"].as_py() // 1_000, stamps["max"].as_py() // 1_000)
    for topic in range(3):
        wanted = []
        for partition in range(4):
            start = states.get(place(topic, partition), ColdState()).cold_end
            for spans, table in tables:
                for span in spans:
                    if span.topic_partition == place(topic, partition):
                        rows = table.slice(span.first_row, span.count)
                        wanted.append(rows.filter(pc.greater_equal(rows["offset"], start)))
        expected = pa.concat_tables(wanted) if wanted else None
        found = made.get(f"{topic:032x}")
        if expected is None or not expected.num_rows:
            assert found is None
        else:
            assert found is not None
            assert found.equals(expected)


def test_large_partitions_are_copied_and_small_pieces_between_are_encoded() -> None:
    sizes = [(40, 40), (40, 2), (40, 40)]
    entries, ends = [], [0, 0]
    for number, (first, second) in enumerate(sizes):
        entries.append(entry(number, spans_of((place(0, 0), ends[0], first), (place(0, 1), ends[1], second))))
        ends = [ends[0] + first, ends[1] + second]
    (plan,) = planned(entries, {}).topics
    copied = [(piece.groups is not None, piece.entry) for piece in plan.pieces]
    assert copied == [(True, 0), (True, 1), (True, 2), (True, 0), (False, 1), (True, 2)]


def test_only_the_row_groups_of_pieces_that_are_not_copied_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[tuple[str, list[int]]] = []

    def noted(
        key: str, flavor: ParquetFlavor, footer: Footer, groups: Sequence[RowGroup], body: memoryview
    ) -> pa.Table:
        decoded.append((key, [group.index for group in groups]))
        return decode_rows(key, flavor, footer, groups, body)

    monkeypatch.setattr(stored_entry, "decode_rows", noted)
    entries = [
        entry(0, spans_of((place(0, 0), 0, 60), (place(0, 1), 0, 60))),
        entry(1, spans_of((place(0, 0), 60, 60), (place(0, 1), 60, 3), (place(0, 2), 0, 60), (place(0, 3), 0, 4))),
    ]
    (plan,) = planned(entries, {}).topics
    assembled(plan, SegmentPlace("web", plan.topic_id, SHARD), entries, FACTS)
    assert decoded == [("wal/0002/1", [1, 3])]


def test_a_left_out_partition_between_two_pieces_is_no_hindrance() -> None:
    sizes = [(place(0, 0), 0, 3), (place(0, 1), 0, 60), (place(0, 2), 0, 3)]
    one = entry(0, spans_of(*sizes))
    (plan,) = plan_topics([one], {place(0, 0): EMPTY, place(0, 2): EMPTY}).topics
    at = SegmentPlace("web", plan.topic_id, SHARD)
    encoded = assembled(plan, at, [one], FACTS)
    made = decode_topic_segment(encoded.segment, at, encoded.body)
    assert made.equals(pa.concat_tables([one.records.slice(0, 3), one.records.slice(63, 3)]))


def test_a_row_group_of_many_topics_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = entry(0, spans_of(*((place(topic, 0), 0, 2) for topic in range(3))), value_bytes=10)
    plans = planned([one], {}).topics
    assert len(plans) == 3
    assembled(plans[0], SegmentPlace("web", plans[0].topic_id, SHARD), [one], FACTS)
    monkeypatch.setattr(row_decoding, "check_groups", None)
    for plan in plans[1:]:
        assembled(plan, SegmentPlace("web", plan.topic_id, SHARD), [one], FACTS)


def test_encoded_rows_are_cut_into_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a piece."""
    monkeypatch.setattr(row_encoding, "ROW_GROUP_RAW_BYTES", 500)
    entries = [entry(n, spans_of((place(0, 0), 9 * n, 9), (place(0, 1), 9 * n, 9))) for n in range(3)]
    (plan,) = planned(entries, {}).topics
    assert {piece.groups for piece in plan.pieces} == {None}
    at = SegmentPlace("web", plan.topic_id, SHARD)
    encoded = assembled(plan, at, entries, FACTS)
    records = decode_topic_segment(encoded.segment, at, encoded.body)
    rows = [group.rows for group in decode_footer("", SEGMENT_FLAVOR, encoded.body, len(encoded.body)).row_groups]
    assert len(rows) > 6
    assert max(rows) - min(rows) <= rows[0]
    halves = [[one.records.slice(9 * half, 9) for one in entries] for half in range(2)]
    assert records.equals(pa.concat_tables([*halves[0], *halves[1]]))
    assert [span.raw_bytes for span in encoded.segment.spans] == [_payload_bytes(half) for half in halves]


def _payload_bytes(tables: Sequence[pa.Table]) -> int:
    rows = pa.concat_tables(tables)
    return sum(len(value) for name in ("key", "value") for value in rows[name].to_pylist())


def test_the_plan_knows_epochs_and_producers() -> None:
    spans = [spans_of((place(0, 0), 5 * n, 5)) for n in range(4)]
    mark = ProducerMark(place(0, 0), "p", 0, 1, 5, 10)
    epochs, marks = (3, 3, 4, 6), ((), (), (mark,), ())
    entries = [entry(n, spans[n], epoch=epochs[n], marks=marks[n]) for n in range(4)]
    (plan,) = planned(entries, {}).topics
    part = plan.partitions[0]
    assert part.epochs == (LeaderEpoch(3, 0), LeaderEpoch(4, 10), LeaderEpoch(6, 15))
    assert (part.producers, part.base_offset, part.next_offset, part.records) == ((mark,), 0, 20, 20)


def test_records_that_are_nowhere_are_named() -> None:
    entries = [entry(0, spans_of((place(0, 0), 10, 5), (place(0, 1), 0, 2)))]
    plan = planned(entries, {place(0, 0): ColdState(cold_end=3)})
    gap = plan.gaps[place(0, 0)]
    assert isinstance(gap.fault, RecordsLost)
    assert "offsets 3 to 9 are neither in a segment nor in the WAL" in gap.fault.reason
    assert gap.base_offset == 10
    assert set(plan.topics[0].partitions) == {1}


def test_partitions_without_a_state_are_left_out() -> None:
    one = entry(0, spans_of((place(0, 0), 0, 5), (place(0, 1), 0, 2)))
    plan = plan_topics([one], {place(0, 1): EMPTY})
    assert set(plan.topics[0].partitions) == {1}


def test_a_recorded_loss_is_passed_over() -> None:
    entries = [entry(base, spans_of((place(0, 0), base, 5))) for base in (0, 8)]
    state = ColdState(losses=(Loss(5, 8, "wal/1", 0),))
    (plan,) = planned(entries, {place(0, 0): state}).topics
    assert plan.partitions[0].records == 10


def test_records_before_a_gap_are_planned() -> None:
    entries = [entry(base, spans_of((place(0, 0), base, 5))) for base in (0, 8)]
    plan = planned(entries, {})
    assert plan.topics[0].partitions[0].next_offset == 5
    assert plan.gaps[place(0, 0)].base_offset == 8


def test_an_offset_that_is_used_twice_is_corrupt() -> None:
    entries = [entry(base, spans_of((place(0, 0), base, 5))) for base in (0, 3)]
    plan = planned(entries, {})
    gap = plan.gaps[place(0, 0)]
    assert "has offset 3 twice" in gap.fault.reason
    assert (plan.topics[0].partitions[0].next_offset, gap.base_offset) == (5, 8)


def test_a_damaged_row_group_names_its_entry() -> None:
    body = bytearray(stored(7, spans_of((place(0, 0), 0, 60))))
    body[60] ^= 1
    with pytest.raises(Corrupt, match="wal/0002/7"):
        StoredEntry("wal/0002/7", bytes(body))


def test_row_groups_that_contradict_the_header_are_corrupt() -> None:
    right, wrong = spans_of((place(0, 0), 0, 60)), spans_of((place(0, 0), 5, 60))
    rows = wal_table(right)
    ends = row_group_ends(right, rows)
    body = encode_parquet(WAL_FLAVOR, as_stored(rows), encode_header(records_header(wrong)), ends)
    with pytest.raises(Corrupt, match="does not hold the offsets of its span"):
        StoredEntry("wal/0002/7", bytes(body))


def test_decoded_rows_are_those_of_the_entry() -> None:
    spans = spans_of((place(0, 0), 0, 3), (place(1, 2), 4, 2))
    assert entry(0, spans, 10).records.num_rows == 5
    assert entry(0, spans, 10).records.equals(
        as_stored(wal_table(spans, [(b"k%d" % row, b"%010d" % row, None) for row in range(5)]))
    )
