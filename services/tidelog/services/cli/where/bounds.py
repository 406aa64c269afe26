"""Finds where in a topic an expression can match: offsets, times and partitions. It does no I/O.

Bounds are wide enough: outside of them no record matches. `ranges` applies them to a partition, by the first and last
time of each cold segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from tidelog.services.cli.where.expression import (
    All,
    AnyOf,
    Comparison,
    Expression,
    Match,
    Membership,
    Not,
    Test,
)

Numbered = Literal["offset", "timestamp", "partition"]
Range: TypeAlias = tuple[int, int]
"""Offsets from the first to before the second."""

LOWEST, HIGHEST = 0, 2**63 - 1


@dataclass(frozen=True)
class Span:
    """The numbers from `first` to `last`, both included; empty if `last` is smaller."""

    first: int = LOWEST
    last: int = HIGHEST

    def within(self, other: Span) -> Span:
        return Span(max(self.first, other.first), min(self.last, other.last))

    def around(self, other: Span) -> Span:
        """The smallest span that holds both."""
        if self.empty or other.empty:
            return other if self.empty else self
        return Span(min(self.first, other.first), max(self.last, other.last))

    @property
    def empty(self) -> bool:
        return self.last < self.first


@dataclass(frozen=True)
class Bounds:
    """Where records can match. A span that is empty says that none can."""

    offset: Span = Span()
    timestamp: Span = Span()
    partition: Span = Span()

    @property
    def empty(self) -> bool:
        return self.offset.empty or self.timestamp.empty or self.partition.empty

    @property
    def by_time(self) -> bool:
        """Whether times are bounded."""
        return self.timestamp != Span()


def bounds_of(expression: Expression) -> Bounds:
    """The bounds outside of which `expression` is false."""
    if isinstance(expression, Not):
        return Bounds()
    if isinstance(expression, All):
        found = Bounds()
        for part in expression.parts:
            found = _combined(found, bounds_of(part), Span.within)
        return found
    if isinstance(expression, AnyOf):
        every = [bounds for bounds in map(bounds_of, expression.parts) if not bounds.empty]
        found = every[0] if every else bounds_of(expression.parts[0])
        for bounds in every[1:]:
            found = _combined(found, bounds, Span.around)
        return found
    return _bounds_of_test(expression)


@dataclass(frozen=True)
class TimedSpan:
    """The offsets of a partition up to `last_offset` that a segment holds, and the times of that segment."""

    last_offset: int
    timestamps: Span


def ranges(start: int, end: int, bounds: Bounds, spans: Sequence[TimedSpan]) -> list[Range]:
    """The parts of ``[start, end)`` of a partition that can match. `spans` are its archived ones, by offset; the
    records behind the last of them can always match in time."""
    first, last = max(start, bounds.offset.first), min(end, bounds.offset.last + 1)
    kept: list[Range] = []
    place = first
    for span in spans:
        stop = min(last, span.last_offset + 1)
        if place >= stop:
            continue
        if not span.timestamps.within(bounds.timestamp).empty:
            _add(kept, (place, stop))
        place = stop
    if place < last:
        _add(kept, (place, last))
    return kept


def _add(kept: list[Range], more: Range) -> None:
    """Add `more`, joined to the last range if it follows it."""
    if kept and kept[-1][1] == more[0]:
        kept[-1] = (kept[-1][0], more[1])
    else:
        kept.append(more)


def _combined(one: Bounds, other: Bounds, both: Callable[[Span, Span], Span]) -> Bounds:
    return Bounds(
        both(one.offset, other.offset), both(one.timestamp, other.timestamp), both(one.partition, other.partition)
    )


def _bounds_of_test(test: Test) -> Bounds:
    if isinstance(test, Match) or test.field.root not in ("offset", "timestamp", "partition"):
        return Bounds()
    if isinstance(test, Membership):
        numbers = cast("tuple[int, ...]", test.constants)
        return _bounded(test.field.root, Span(min(numbers), max(numbers)))
    return _bounded(test.field.root, _span_of(test))


def _bounded(root: Numbered, span: Span) -> Bounds:
    if root == "offset":
        return Bounds(offset=span)
    return Bounds(timestamp=span) if root == "timestamp" else Bounds(partition=span)


def _span_of(test: Comparison) -> Span:
    number = cast(int, test.constant)
    spans = {
        "==": Span(number, number),
        "!=": Span(),
        "<": Span(last=number - 1),
        "<=": Span(last=number),
        ">": Span(number + 1),
        ">=": Span(number),
    }
    return spans[test.operator]
