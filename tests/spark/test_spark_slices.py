"""The plan of one read of a partition: each offset of the range is in one slice, and each slice in one task."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.segments import segment

from tidelog.spark_connector.slices import (
    OFFSETS_PER_TASK,
    ColdSlice,
    DataLoss,
    HotSlice,
    PartitionRange,
    Slice,
    bounded_range,
    dealt_to_tasks,
    offsets_per_task,
    slices_of,
    through_broker,
)
from tidelog.storage.errors import Invalid
from tidelog.wire.topics import PartitionLogDescription


def log_of(*borders: int, high_watermark: int) -> PartitionLogDescription:
    """Segments between consecutive `borders`; the first is the log start, the last the cold end."""
    segments = tuple(segment(f"{low}.parquet", low, high - 1, 0, 0) for low, high in pairwise(borders))
    return PartitionLogDescription(
        topic="web",
        topic_id="id",
        partition=3,
        shard=0,
        log_start_offset=borders[0],
        cold_end=borders[-1],
        high_watermark=high_watermark,
        manifest_version=1,
        store="file:///store",
        segments=segments,
    )


def offsets_in(slices: list[Slice]) -> list[int]:
    return [offset for piece in slices for offset in range(piece.start, piece.end)]


LOG = log_of(10, 20, 30, high_watermark=42)


@given(st.integers(10, 42), st.integers(10, 42))
def test_the_slices_hold_each_offset_of_the_range_once_and_in_order(one: int, other: int) -> None:
    start, end = sorted((one, other))

    assert offsets_in(slices_of(PartitionRange(LOG, start, end))) == list(range(start, end))


def test_below_the_cold_end_slices_are_cold_and_from_it_on_one_is_hot() -> None:
    cold_border, cold, hot = slices_of(PartitionRange(LOG, 12, 40))

    assert cold_border == ColdSlice(3, LOG.segments[0], 12, 20)
    assert cold == ColdSlice(3, LOG.segments[1], 20, 30)
    assert hot == HotSlice(3, 30, 40)


def test_a_cold_slice_knows_whether_it_is_the_whole_segment() -> None:
    border, whole, _ = slices_of(PartitionRange(LOG, 12, 40))

    assert isinstance(border, ColdSlice)
    assert isinstance(whole, ColdSlice)
    assert (border.whole, whole.whole) == (False, True)


def test_through_the_broker_all_of_a_range_is_hot() -> None:
    assert through_broker(PartitionRange(LOG, 12, 40)) == [HotSlice(3, 12, 40)]
    assert through_broker(PartitionRange(LOG, 12, 12)) == []


@pytest.mark.parametrize(("start", "end"), [(9, 42), (10, 43), (43, 43), (0, 5)])
def test_offsets_that_the_log_does_not_hold_are_data_loss_and_the_range_is_reported(start: int, end: int) -> None:
    with pytest.raises(
        DataLoss, match=rf"web-3: .*\[{start}, {end}\).* holds \[10, 42\).*failOnDataLoss=false"
    ) as loss:
        bounded_range(LOG, start, end, fail_on_data_loss=True)

    assert (loss.value.log_start_offset, loss.value.high_watermark) == (10, 42)


@pytest.mark.parametrize(
    ("start", "end", "left"), [(9, 42, (10, 42)), (10, 43, (10, 42)), (43, 50, (42, 42)), (0, 5, (10, 10))]
)
def test_with_data_loss_allowed_the_rest_is_read_and_a_warning_logged(
    start: int, end: int, left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = bounded_range(LOG, start, end, fail_on_data_loss=False)

    assert (found.start, found.end) == left
    assert "the log holds [10, 42)" in caplog.text


def test_a_start_after_the_end_is_invalid_unless_both_were_found_by_time() -> None:
    with pytest.raises(Invalid, match="starting offset 30 is after ending offset 20"):
        bounded_range(LOG, 30, 20, fail_on_data_loss=False)

    crossed = bounded_range(LOG, 30, 20, fail_on_data_loss=True, ends_may_cross=True)
    assert slices_of(crossed) == []


@given(
    st.lists(st.integers(1, 3 * OFFSETS_PER_TASK), max_size=12),
    st.one_of(st.none(), st.integers(1, 12)),
    st.one_of(st.none(), st.integers(100_000, 2_000_000)),
)
def test_every_offset_is_in_one_task_and_the_limits_hold(
    sizes: list[int], tasks_min: int | None, records_max: int | None
) -> None:
    slices: list[Slice] = [HotSlice(partition, 0, size) for partition, size in enumerate(sizes)]
    limit = offsets_per_task(slices, tasks_min, records_max)

    tasks = dealt_to_tasks(slices, limit)

    dealt = [(piece.partition, piece.start, piece.end) for task in tasks for piece in task]
    for partition, size in enumerate(sizes):
        ends = [(start, end) for of, start, end in dealt if of == partition]
        assert [end for _, end in ends[:-1]] == [start for start, _ in ends[1:]]
        assert (ends[0][0], ends[-1][1]) == (0, size)
    if records_max is not None:
        assert all(sum(piece.end - piece.start for piece in task) <= records_max for task in tasks)
    if tasks_min is not None:
        assert len(tasks) >= min(tasks_min, sum(sizes))


def test_small_slices_share_a_task() -> None:
    slices: list[Slice] = [HotSlice(partition, 0, OFFSETS_PER_TASK // 4) for partition in range(8)]

    assert [len(task) for task in dealt_to_tasks(slices, None)] == [4, 4]
