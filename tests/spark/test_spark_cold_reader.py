"""A slice of a segment: exactly its rows, only the row groups it needs, and an error for damage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from tests.counting_files import counting_files
from tests.topic_segments import TOPIC_ID, Ends, log_of, table_of, time_ms, with_noise, write_segment

from tidelog.spark_connector.reads import cold_reader
from tidelog.spark_connector.reads.cold_reader import StoreReader
from tidelog.spark_connector.reads.pruning import Interval
from tidelog.spark_connector.reads.slices import ColdSlice, PartitionRange, slices_of
from tidelog.storage.errors import Corrupt, Invalid, NotFound
from tidelog.wire.topic_log import TopicLogDescription

ALL_TIMES = Interval()
LARGE, SMALL = 1, 6
ENDS = {0: 3, LARGE: 1_000, 2: 40, 3: 1, 5: 70, SMALL: 9}
"""The cold end of each partition. Row groups of 100 rows: the large partition has some of its own, the others share."""
Wanted = Mapping[int, tuple[int, int]]


@pytest.fixture
def log(tmp_path: Path) -> TopicLogDescription:
    """One segment; the records of partition 2 with odd offsets were compacted away."""
    offsets = {p: range(0, end, 2 if p == 2 else 1) for p, end in ENDS.items()}
    rows = sum(map(len, offsets.values()))
    segment = write_segment(tmp_path, offsets, 0, ends=[*range(100, rows, 100), rows])
    return log_of(tmp_path, [segment], {p: Ends(0, ENDS.get(p, 0), ENDS.get(p, 0)) for p in range(7)})


def slice_of(log: TopicLogDescription, wanted: Wanted) -> ColdSlice:
    [found] = slices_of(log, [PartitionRange(log.partition(p), *offsets) for p, offsets in wanted.items()])
    assert isinstance(found, ColdSlice)
    return found


def places_read(log: TopicLogDescription, wanted: Wanted, timestamps_ms: Interval = ALL_TIMES) -> list[tuple[int, int]]:
    batches = StoreReader(log.store).read(slice_of(log, wanted), ["value"], timestamps_ms)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(row["value"] == b"%d-%d" % (row["partition"], row["offset"]) for row in rows)
    return [(row["partition"], row["offset"]) for row in rows]


def places(wanted: Wanted) -> list[tuple[int, int]]:
    return [(p, at) for p, offsets in wanted.items() for at in range(*offsets) if p != 2 or at % 2 == 0]


@pytest.mark.parametrize(
    "wanted",
    [
        {p: (0, end) for p, end in ENDS.items()},
        {LARGE: (0, 1_000)},
        {LARGE: (0, 1)},
        {LARGE: (999, 1_000)},
        {LARGE: (37, 613)},
        {2: (11, 30)},
        {0: (1, 2), LARGE: (500, 700), 2: (0, 40), SMALL: (8, 9)},
        {0: (0, 3), 3: (0, 1), SMALL: (0, 9)},
    ],
    ids=str,
)
def test_a_slice_has_exactly_its_rows_in_order(log: TopicLogDescription, wanted: Wanted) -> None:
    assert places_read(log, wanted) == places(wanted)


def test_small_stretches_and_single_rows_give_the_same(
    log: TopicLogDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {p: (0, end) for p, end in ENDS.items()}
    every_other = {p: (0, ENDS[p] - 1) for p in (0, LARGE, 5)}
    for name, value in (("STRETCH_RAW_BYTES", 1), ("FOOTER_GUESS_BYTES", 16), ("SLICES_MAX", 0)):
        monkeypatch.setattr(cold_reader, name, value)

    assert places_read(log, whole) == places(whole)
    assert places_read(log, every_other) == places(every_other)


def test_columns_come_behind_partition_and_offset(log: TopicLogDescription) -> None:
    batches = list(StoreReader(log.store).read(slice_of(log, {LARGE: (10, 20)}), ["value", "key"], ALL_TIMES))

    assert [batch.schema.names for batch in batches] == [["partition", "offset", "value", "key"]]
    assert batches[0].column("key").to_pylist() == [None if offset % 3 else b"k" for offset in range(10, 20)]


def test_row_groups_whose_times_are_not_asked_for_are_left_out(log: TopicLogDescription) -> None:
    found = places_read(log, {LARGE: (0, 1_000)}, Interval(time_ms(LARGE, 500), time_ms(LARGE, 510)))

    assert {(LARGE, offset) for offset in range(500, 511)} <= set(found)
    assert len(found) <= 200


def test_one_partition_and_a_hundredth_of_its_offsets_read_few_of_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a merged segment of 20 partitions, whose row groups end with partitions."""
    partitions, records, group = 20, 4_000, 400
    offsets = {p: range(records) for p in range(partitions)}
    table = with_noise(table_of(offsets), value_bytes=250)
    segment = write_segment(
        tmp_path, offsets, 0, level=2, ends=range(group, partitions * records + 1, group), table=table
    )
    log = log_of(tmp_path, [segment], {p: Ends(0, records, records) for p in offsets})
    files, reads = counting_files()
    monkeypatch.setattr(cold_reader, "arrow_files", lambda _: (files, str(tmp_path)))
    wanted = slice_of(log, {7: (2_000, 2_040)})
    found = [batch.num_rows for batch in StoreReader(log.store).read(wanted, ["value"], ALL_TIMES)]

    assert sum(found) == 40
    assert 0 < sum(reads) < 0.05 * segment.size_bytes


def flip(body: bytes) -> bytes:
    return body[:1_000] + bytes([body[1_000] ^ 1]) + body[1_001:]


@pytest.mark.parametrize(
    "harm",
    [flip, lambda _: b"", lambda _: b"PAR1", lambda _: b"no parquet at all", lambda _: b"PAR1" + b"\xff" * 8 + b"PAR1"],
)
def test_damage_is_named_and_not_read(log: TopicLogDescription, tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    path = tmp_path / log.segments[0].key
    path.write_bytes(harm(path.read_bytes()))

    with pytest.raises(Corrupt) as damage:
        places_read(log, {LARGE: (0, 1_000)})

    assert damage.value.name == log.segments[0].key


def test_a_segment_under_another_name_or_with_other_records_is_damage(log: TopicLogDescription, tmp_path: Path) -> None:
    [segment] = log.segments
    other = segment.key.replace(TOPIC_ID, "71" * 16)
    (tmp_path / other).parent.mkdir()
    (tmp_path / segment.key).rename(tmp_path / other)
    renamed = msgspec.structs.replace(log, segments=(msgspec.structs.replace(segment, key=other),))
    with pytest.raises(Corrupt, match="another topic or shard"):
        places_read(renamed, {LARGE: (0, 1_000)})
    (tmp_path / other).rename(tmp_path / segment.key)
    write_segment(tmp_path, {LARGE: range(7, 500)}, 0)
    with pytest.raises(Corrupt, match="other records of partition 1"):
        places_read(log, {LARGE: (0, 1_000)})


def test_a_missing_object_is_not_found(log: TopicLogDescription, tmp_path: Path) -> None:
    (tmp_path / log.segments[0].key).unlink()

    with pytest.raises(NotFound, match=f"file://{tmp_path} has no object {log.segments[0].key}"):
        places_read(log, {LARGE: (0, 1_000)})


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(Invalid, match="file:///PATH or s3://BUCKET/PREFIX"):
        StoreReader("https://example.org/bucket")
