"""Turns a query's filters into bounds of offsets, timestamps, partitions and topics, so that the rest is not read.

Spark passes its filters to the data source and still applies them itself. So a bound may be loose, but never too tight,
and an unknown filter narrows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tidelog.spark_connector.reads.slices import HotSlice, Slice

OFFSET_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Interval:
    """Whole numbers from `low` to `high`, both included; None: no bound."""

    low: int | None = None
    high: int | None = None

    def narrowed(self, low: int | None, high: int | None) -> Interval:
        lows = [bound for bound in (self.low, low) if bound is not None]
        highs = [bound for bound in (self.high, high) if bound is not None]
        return Interval(max(lows, default=None), min(highs, default=None))

    def meets(self, low: int, high: int) -> bool:
        """Whether the interval holds any of ``low .. high``."""
        return (self.low is None or high >= self.low) and (self.high is None or low <= self.high)


@dataclass(frozen=True)
class Pruning:
    """Bounds that hold together; None: any partition, any topic."""

    offsets: Interval = field(default_factory=Interval)
    timestamps_ms: Interval = field(default_factory=Interval)
    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None

    def takes_topic(self, name: str) -> bool:
        return self.topics is None or name in self.topics

    def takes_partition(self, number: int) -> bool:
        return self.partitions is None or number in self.partitions

    def narrowed(self, slices: Iterable[Slice]) -> list[Slice]:
        """The rest of `slices` within the bounds. Only cold slices know their timestamps."""
        if self == EVERYTHING:
            return list(slices)
        return [left for each in slices if (left := self._within(each))]

    def _within(self, each: Slice) -> Slice | None:
        low = self.offsets.low or 0
        high = OFFSET_MAX if self.offsets.high is None else self.offsets.high + 1
        if isinstance(each, HotSlice):
            left = replace(each, start=max(each.start, low), end=min(each.end, high))
            return left if left.start < left.end and self.takes_partition(each.partition) else None
        if not self.timestamps_ms.meets(each.segment.min_timestamp, each.segment.max_timestamp):
            return None
        cut = (piece.between(low, high) for piece in each.pieces if self.takes_partition(piece.span.partition))
        pieces = tuple(piece for piece in cut if piece.start < piece.end)
        return replace(each, pieces=pieces) if pieces else None


EVERYTHING = Pruning()


def pruning_of(filters: Sequence[Filter]) -> Pruning:
    """The bounds of all `filters` together."""
    pruning = Pruning()
    for condition in filters:
        pruning = _with(pruning, condition)
    return pruning


def _with(pruning: Pruning, condition: Filter) -> Pruning:
    column = getattr(condition, "attribute", ())
    if column in (("partition",), ("topic",)):
        return _with_names(pruning, column[0], condition)
    if column == ("offset",) and (bounds := _bounds(condition, _whole_number)):
        return replace(pruning, offsets=pruning.offsets.narrowed(*bounds))
    if column == ("timestamp",) and (bounds := _bounds(condition, _milliseconds)):
        return replace(pruning, timestamps_ms=pruning.timestamps_ms.narrowed(*bounds))
    return pruning


def _with_names(pruning: Pruning, column: str, condition: Filter) -> Pruning:
    if isinstance(condition, EqualTo):
        named: frozenset[Any] = frozenset([condition.value])
    elif isinstance(condition, In):
        named = frozenset(condition.value)
    else:
        return pruning
    if column == "topic":
        return replace(pruning, topics=named if pruning.topics is None else pruning.topics & named)
    return replace(pruning, partitions=named if pruning.partitions is None else pruning.partitions & named)


def _bounds(condition: Filter, number: Any) -> tuple[int | None, int | None] | None:
    """Bounds of all values that meet `condition`. A strict bound becomes a loose one, which is harmless."""
    if isinstance(condition, In):
        values = [number(value) for value in condition.value]
        return (min(values), max(values)) if values and None not in values else None
    value = number(getattr(condition, "value", None))
    if value is None:
        return None
    if isinstance(condition, EqualTo):
        return value, value
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        return value, None
    return (None, value) if isinstance(condition, LessThan | LessThanOrEqual) else None


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _milliseconds(value: object) -> int | None:
    """The millisecond that contains a moment. Records have whole milliseconds, so a lower bound is loose by less than
    one millisecond and an upper bound is exact."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(milliseconds=1)
