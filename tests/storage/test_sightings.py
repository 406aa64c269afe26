"""When a version may be collected: never if it was not seen a grace ago, and soon if it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.storage.archive_scenes import ManualClock

from tidelog.storage.upkeep.sightings import SIGHTINGS_PER_GRACE, Sightings

GRACE_S = 64.0
SLACK_S = GRACE_S / SIGHTINGS_PER_GRACE


@given(steps=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 3)), max_size=120))
def test_a_version_is_ripe_a_grace_after_it_was_seen_and_not_much_later(steps: list[tuple[float, int]]) -> None:
    clock = ManualClock()
    sightings = Sightings(clock, GRACE_S)
    first_seen_s: dict[int, float] = {}
    version = 0
    for pause_s, grown in steps:
        clock.now_s += pause_s
        version += grown
        sightings.see(version)
        for number in range(version + 1):
            first_seen_s.setdefault(number, clock.now_s)
        ripe = sightings.ripe()
        surely = [n for n, seen_s in first_seen_s.items() if clock.now_s - seen_s >= GRACE_S + SLACK_S]
        perhaps = [n for n, seen_s in first_seen_s.items() if clock.now_s - seen_s >= GRACE_S]
        assert max(surely, default=-1) <= ripe <= max(perhaps, default=-1)
        wait_s = sightings.ripens_in_s(version)
        assert wait_s is not None
        assert (wait_s == 0) == (version <= ripe)


def test_many_versions_in_a_grace_take_few_sightings() -> None:
    clock = ManualClock()
    sightings = Sightings(clock, GRACE_S)
    for version in range(10_000):
        clock.now_s += 0.001
        sightings.see(version)
    for version in range(10_000, 20_000):
        clock.now_s += 0.1
        sightings.see(version)
        sightings.ripe()
    assert len(sightings._seen) <= SIGHTINGS_PER_GRACE + 3


def test_a_version_that_is_yet_to_come_has_no_time() -> None:
    sightings = Sightings(ManualClock(), GRACE_S)
    assert sightings.ripe() == -1
    assert sightings.ripens_in_s(0) is None
    sightings.see(3)
    assert sightings.ripens_in_s(2) == sightings.ripens_in_s(3) == GRACE_S
    assert sightings.ripens_in_s(4) is None
