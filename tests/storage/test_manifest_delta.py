"""The difference between a manifest version and an older one is computed and applied correctly, for any two lists."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.storage.manifest_histories import a_segment
from tests.storage.record_tables import WEB

from tidelog.storage.manifests.manifest import Garbage, Manifest, Segment
from tidelog.storage.manifests.manifest_delta import DoesNotApply, ListDifference, applied, difference, shared_ends
from tidelog.storage.wal.wal_entry import ProducerMark

LISTS = st.lists(st.integers(0, 3), max_size=12).map(tuple)
NUMBERS = st.lists(st.integers(0, 30), max_size=20, unique=True)


def shared_ends_slowly(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, int]:
    shorter = min(len(before), len(after))
    first = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    last = next((n for n in range(shorter - first) if before[-1 - n] != after[-1 - n]), shorter - first)
    return first, last


@given(before=LISTS, after=LISTS)
@example(before=(), after=())
@example(before=(1, 1), after=(1, 1, 1))
def test_shared_ends_are_those_a_loop_finds(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    assert shared_ends(before, after) == shared_ends_slowly(before, after)


@st.composite
def edited(draw: st.DrawFn) -> tuple[Manifest, Manifest]:
    """A manifest and a later one: segments left and came, garbage was added and collected, producers wrote."""
    before, after = sorted(draw(NUMBERS)), sorted(draw(NUMBERS))
    salt = draw(st.sampled_from(["", "rewritten"]))

    def segments(numbers: list[int], salt: str) -> tuple[Segment, ...]:
        return tuple(a_segment(number, salt=salt if number % 2 else "") for number in numbers)

    garbage = [Garbage(f"g{number}", number, 0) for number in draw(NUMBERS)]
    marks = [ProducerMark(WEB, f"p{number}", 0, 0, 0, number) for number in draw(NUMBERS)]
    cut, kept = draw(st.integers(0, len(garbage))), draw(st.integers(0, len(marks)))
    base = Manifest(WEB, 0, 0, 31_000, segments(before, ""), tuple(marks), garbage=tuple(garbage))
    came = tuple(replace(mark, base_offset=mark.base_offset + 100) for mark in marks[kept:])
    return base, replace(
        base,
        version=1,
        segments=segments(after, salt),
        garbage=(*garbage[cut:], Garbage("g-new", 1, 1)),
        producers=(*marks[:kept], *came),
    )


@given(pair=edited())
@settings(max_examples=200, deadline=None)
def test_a_difference_put_on_its_base_is_the_later_manifest(pair: tuple[Manifest, Manifest]) -> None:
    base, later = pair
    made = difference(base, later)
    assert applied(base, made) == (later.segments, later.garbage, later.producers)
    assert len(made.segments) == len(set(base.segments) ^ set(later.segments))


def test_a_difference_that_takes_away_what_is_not_there_does_not_apply() -> None:
    base = Manifest(WEB, 0, segments=(a_segment(1),))
    made = replace(difference(base, base), segments=ListDifference((7,), ()))
    with pytest.raises(DoesNotApply):
        applied(base, made)
