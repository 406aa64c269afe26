"""The plan of one read: each offset of the ranges is in one slice, and each slice in one task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.segments import log_of

from tidelog.spark_connector.reads.slices import (
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
from tidelog.wire.topic_log import PartitionLogDescription

Place = tuple[int, int]
LOG = log_of({0: (10, 20, 30), 3: (10, 15, 30)}, high_watermarks={0: 42, 3: 30})
"""Two segments: offsets 10 to 19 of partition 0 and 10 to 14 of partition 3; then up to 29 of both."""


def ranges(wanted: Mapping[int, tuple[int, int]]) -> list[PartitionRange]:
    return [PartitionRange(LOG.partition(number), *offsets) for number, offsets in wanted.items()]


def places_in(slices: Iterable[Slice]) -> list[Place]:
    found: list[Place] = []
    for each in slices:
        if isinstance(each, HotSlice):
            found += [(each.partition, offset) for offset in range(each.start, each.end)]
        else:
            found += [(p.span.partition, offset) for p in each.pieces for offset in range(p.start, p.end)]
    return found


@given(*[st.tuples(st.integers(10, end), st.integers(10, end)).map(sorted).map(tuple) for end in (42, 30)])
def test_the_slices_hold_each_offset_of_the_ranges_once(zero: Place, three: Place) -> None:
    found = places_in(slices_of(LOG, ranges({0: zero, 3: three})))

    assert len(found) == len(set(found))
    assert set(found) == {(p, offset) for p, (start, end) in ((0, zero), (3, three)) for offset in range(start, end)}


def test_below_the_cold_end_slices_are_cold_and_from_it_on_one_is_hot() -> None:
    first, second, hot = slices_of(LOG, ranges({0: (12, 40), 3: (10, 30)}))

    assert isinstance(first, ColdSlice)
    assert isinstance(second, ColdSlice)
    assert [(p.span.partition, p.start, p.end, p.whole) for p in first.pieces] == [
        (0, 12, 20, False),
        (3, 10, 15, True),
    ]
    assert [(p.span.partition, p.start, p.end) for p in second.pieces] == [(0, 20, 30), (3, 15, 30)]
    assert (first.whole, second.whole) == (False, True)
    assert hot == HotSlice(0, 30, 40)


def test_a_segment_of_which_one_partition_is_read_is_not_whole() -> None:
    found = slices_of(LOG, ranges({3: (10, 30)}))

    assert [isinstance(each, ColdSlice) and each.whole for each in found] == [False, False]


def test_what_is_left_of_a_slice_begins_behind_the_last_record() -> None:
    whole = slices_of(LOG, ranges({0: (10, 30), 3: (10, 30)}))[0]
    assert isinstance(whole, ColdSlice)
    every = places_in([whole])
    for number, place in enumerate(every):
        assert places_in([whole.after(*place)]) == every[number + 1 :]


def test_through_the_broker_all_of_a_range_is_hot() -> None:
    assert through_broker(ranges({0: (12, 40), 3: (12, 12)})) == [HotSlice(0, 12, 40)]


ENDS = PartitionLogDescription(3, 0, 1, 10, 30, 0, 42)


@pytest.mark.parametrize(("start", "end"), [(9, 42), (10, 43), (43, 43), (0, 5)])
def test_offsets_that_the_log_does_not_hold_are_data_loss_and_the_range_is_reported(start: int, end: int) -> None:
    with pytest.raises(
        DataLoss, match=rf"web-3: .*\[{start}, {end}\).* holds \[10, 42\).*failOnDataLoss=false"
    ) as loss:
        bounded_range("web", ENDS, start, end, fail_on_data_loss=True)

    assert (loss.value.log_start_offset, loss.value.high_watermark) == (10, 42)


@pytest.mark.parametrize(
    ("start", "end", "left"), [(9, 42, (10, 42)), (10, 43, (10, 42)), (43, 50, (42, 42)), (0, 5, (10, 10))]
)
def test_with_data_loss_allowed_the_rest_is_read_and_a_warning_logged(
    start: int, end: int, left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = bounded_range("web", ENDS, start, end, fail_on_data_loss=False)

    assert (found.start, found.end) == left
    assert "the log holds [10, 42)" in caplog.text


def test_a_start_after_the_end_is_invalid_unless_both_were_found_by_time() -> None:
    with pytest.raises(Invalid, match="web-3: starting offset 30 is after ending offset 20"):
        bounded_range("web", ENDS, 30, 20, fail_on_data_loss=False)

    crossed = bounded_range("web", ENDS, 30, 20, fail_on_data_loss=True, ends_may_cross=True)
    assert slices_of(LOG, [crossed]) == []


@given(
    st.lists(st.lists(st.integers(1, 2 * OFFSETS_PER_TASK), max_size=5), max_size=5),
    st.lists(st.integers(1, 3 * OFFSETS_PER_TASK), max_size=4),
    st.one_of(st.none(), st.integers(1, 12)),
    st.one_of(st.none(), st.integers(100_000, 2_000_000)),
)
def test_every_offset_is_in_one_task_and_the_limits_hold(
    segments: list[list[int]], hot: list[int], tasks_min: int | None, records_max: int | None
) -> None:
    """Each segment has other partitions, and each partition one piece of the size that was drawn."""
    sizes = [size for segment in segments for size in segment]
    slices: list[Slice] = [HotSlice(len(sizes) + number, 0, size) for number, size in enumerate(hot)]
    first = 0
    for segment in segments:
        log = log_of({first + number: (0, size) for number, size in enumerate(segment)})
        slices += slices_of(log, [PartitionRange(ends, 0, ends.cold_end) for ends in log.partitions])
        first += len(segment)
    limit = offsets_per_task(slices, tasks_min, records_max)

    tasks = dealt_to_tasks(slices, limit)

    dealt = sorted(bound for task in tasks for each in task for bound in bounds_of(each))
    for partition, size in enumerate([*sizes, *hot]):
        ends = [(start, end) for of, start, end in dealt if of == partition]
        assert [end for _, end in ends[:-1]] == [start for start, _ in ends[1:]]
        assert (ends[0][0], ends[-1][1]) == (0, size)
    assert all(sum(each.offsets for each in task) <= limit for task in tasks)
    if tasks_min is not None:
        assert len(tasks) >= min(tasks_min, sum(each.offsets for each in slices))


def bounds_of(each: Slice) -> Sequence[tuple[int, int, int]]:
    if isinstance(each, HotSlice):
        return [(each.partition, each.start, each.end)]
    return [(piece.span.partition, piece.start, piece.end) for piece in each.pieces]


def test_small_slices_share_a_task() -> None:
    slices: list[Slice] = [HotSlice(partition, 0, OFFSETS_PER_TASK // 4) for partition in range(8)]

    assert [len(task) for task in dealt_to_tasks(slices, OFFSETS_PER_TASK)] == [4, 4]
