"""A slice of a segment: exactly its rows, only the row groups it needs, and an error for damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.segments import RECORDS_IN_SEGMENT, write_segment
from tests.spark.segments import segment as described

from tidelog.spark_connector import cold_reader
from tidelog.spark_connector.cold_reader import StoreReader
from tidelog.spark_connector.pruning import Interval
from tidelog.spark_connector.slices import ColdSlice
from tidelog.storage.errors import Corrupt, Invalid, NotFound
from tidelog.storage.parquet import parquet_flavor
from tidelog.wire.topics import SegmentDescription

ALL_TIMES = Interval()


@pytest.fixture
def segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SegmentDescription:
    """With row groups of about 8 KiB, so that there are several."""
    monkeypatch.setattr(parquet_flavor, "ROW_GROUP_RAW_BYTES", 8 * 1024)
    last = RECORDS_IN_SEGMENT - 1
    return described(write_segment(tmp_path), 0, last, 0, 10 * last)


def offsets_read(
    store: Path, segment: SegmentDescription, start: int, end: int, timestamps_ms: Interval = ALL_TIMES
) -> list[int]:
    piece = ColdSlice(0, segment, start, end)
    batches = StoreReader(f"file://{store}").read(piece, ["offset"], timestamps_ms)
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


@pytest.mark.parametrize(("start", "end"), [(0, 1_000), (0, 1), (999, 1_000), (37, 613), (500, 500)])
def test_a_slice_has_exactly_its_offsets(tmp_path: Path, segment: SegmentDescription, start: int, end: int) -> None:
    assert offsets_read(tmp_path, segment, start, end) == list(range(start, end))


def test_small_stretches_give_the_same_rows(
    tmp_path: Path, segment: SegmentDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_reader, "STRETCH_RAW_BYTES", 1)
    monkeypatch.setattr(cold_reader, "FOOTER_GUESS_BYTES", 16)

    assert offsets_read(tmp_path, segment, 3, 997) == list(range(3, 997))


def test_columns_come_in_the_order_asked_for_and_offset_only_if_asked(
    tmp_path: Path, segment: SegmentDescription
) -> None:
    piece = ColdSlice(0, segment, 10, 20)

    batches = list(StoreReader(f"file://{tmp_path}").read(piece, ["value", "key"], ALL_TIMES))

    assert [batch.schema.names for batch in batches] == [["value", "key"]]
    assert batches[0].column("key").to_pylist() == [None if offset % 3 else b"k" for offset in range(10, 20)]


def test_row_groups_whose_times_are_not_asked_for_are_left_out(tmp_path: Path, segment: SegmentDescription) -> None:
    found = offsets_read(tmp_path, segment, 0, 1_000, Interval(5_000, 5_100))

    assert set(range(500, 511)) <= set(found)
    assert len(found) < 300


def test_a_damaged_row_group_is_named_and_not_read(tmp_path: Path, segment: SegmentDescription) -> None:
    path = tmp_path / segment.key
    body = bytearray(path.read_bytes())
    body[1_000] ^= 1
    path.write_bytes(body)

    with pytest.raises(Corrupt) as damage:
        offsets_read(tmp_path, segment, 0, 1_000)

    assert damage.value.name == segment.key


@pytest.mark.parametrize("body", [b"", b"PAR1", b"no parquet at all", b"PAR1" + b"\xff" * 8 + b"PAR1"])
def test_a_foreign_object_is_named(tmp_path: Path, segment: SegmentDescription, body: bytes) -> None:
    (tmp_path / segment.key).write_bytes(body)

    with pytest.raises(Corrupt, match=segment.key):
        offsets_read(tmp_path, segment, 0, 1_000)


def test_a_missing_object_is_not_found(tmp_path: Path, segment: SegmentDescription) -> None:
    (tmp_path / segment.key).unlink()

    with pytest.raises(NotFound, match=f"file://{tmp_path} has no object {segment.key}"):
        offsets_read(tmp_path, segment, 0, 1_000)


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(Invalid, match="file:///PATH or s3://BUCKET/PREFIX"):
        StoreReader("https://example.org/bucket")
