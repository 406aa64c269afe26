"""A query's filters reduce what is read, and never exclude a row that could match."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from tests.spark.segments import segment

from tidelog.spark_connector.reads.pruning import Interval, Pruning, pruning_of
from tidelog.spark_connector.reads.slices import ColdSlice, HotSlice, Piece, Slice

SEGMENT = segment("a.parquet", {0: (0, 100), 2: (500, 510)}, (1_000, 1_999))
COLD = ColdSlice(SEGMENT, (Piece(SEGMENT.spans[0], 0, 100), Piece(SEGMENT.spans[1], 500, 510)))
HOT = HotSlice(1, 100, 200)
SLICES: list[Slice] = [COLD, HOT]


def at(ms: int, microseconds: int = 0) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms, microseconds=microseconds)


def spans(filters: list[Filter]) -> list[tuple[int, int]]:
    """The offsets of each partition that are left, the second partition of the segment behind the others."""
    found = []
    for each in pruning_of(filters).narrowed(SLICES):
        parts = [each] if isinstance(each, HotSlice) else each.pieces
        assert parts
        found += [(part.start, part.end) for part in parts]
    return sorted(found)


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], [(0, 100), (100, 200), (500, 510)]),
        ([GreaterThanOrEqual(("offset",), 40)], [(40, 100), (100, 200), (500, 510)]),
        ([LessThanOrEqual(("offset",), 140)], [(0, 100), (100, 141)]),
        ([GreaterThan(("offset",), 150), LessThan(("offset",), 160)], [(150, 161)]),
        ([EqualTo(("offset",), 7)], [(7, 8)]),
        ([In(("offset",), (7, 3, 12))], [(3, 13)]),
        ([EqualTo(("partition",), 1)], [(100, 200)]),
        ([EqualTo(("partition",), 2)], [(500, 510)]),
        ([EqualTo(("partition",), 2), GreaterThan(("offset",), 505)], [(505, 510)]),
        ([In(("partition",), (0, 5)), IsNotNull(("partition",))], [(0, 100)]),
        ([EqualTo(("partition",), 0), EqualTo(("partition",), 1)], []),
        ([GreaterThan(("timestamp",), at(2_000))], [(100, 200)]),
        ([GreaterThanOrEqual(("timestamp",), at(1_999))], [(0, 100), (100, 200), (500, 510)]),
        ([LessThan(("timestamp",), at(999, 999))], [(100, 200)]),
        ([Not(EqualTo(("offset",), 7))], [(0, 100), (100, 200), (500, 510)]),
        ([StringStartsWith(("topic",), "w")], [(0, 100), (100, 200), (500, 510)]),
        ([EqualTo(("value",), b"x")], [(0, 100), (100, 200), (500, 510)]),
        ([EqualTo(("timestamp",), datetime(1990, 1, 1))], [(0, 100), (100, 200), (500, 510)]),  # noqa: DTZ001 - tested
    ],
)
def test_filters_narrow_slices(filters: list[Filter], left: list[tuple[int, int]]) -> None:
    assert spans(filters) == left


def test_topics_are_chosen_by_equality_and_by_list() -> None:
    pruning = pruning_of([In(("topic",), ("web", "app")), EqualTo(("topic",), "app")])

    assert [pruning.takes_topic(name) for name in ("web", "app", "sys")] == [False, True, False]
    assert Pruning().takes_topic("any")


def test_an_interval_meets_what_touches_it() -> None:
    interval = Interval(10, 20)

    assert interval.meets(20, 30)
    assert interval.meets(0, 10)
    assert not interval.meets(21, 30)
    assert Interval().meets(0, 0)
