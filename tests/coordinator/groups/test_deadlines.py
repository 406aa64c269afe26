"""Deadlines: in order, cheap to put off, and small while keys come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups import deadlines
from tidelog.coordinator.groups.deadlines import Deadlines

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abcdef"), st.integers(0, 50)),
        st.tuples(st.just("drop"), st.sampled_from("abcdef"), st.just(0)),
        st.tuples(st.just("expire"), st.just(""), st.integers(0, 50)),
    )
)


@given(steps=STEPS, dropped_max=st.sampled_from([0, 1_000]))
def test_each_key_is_due_at_its_last_time(steps: list[tuple[str, str, int]], dropped_max: int) -> None:
    before, deadlines.DROPPED_MAX = deadlines.DROPPED_MAX, dropped_max
    try:
        found, expected, now_ms = Deadlines(), dict[str, int](), 0
        for step, key, ms in steps:
            if step == "set":
                found.set(key, now_ms + ms)
                expected[key] = now_ms + ms
            elif step == "drop":
                found.drop(key)
                expected.pop(key, None)
            else:
                now_ms += ms
                due = sorted((at_ms, key) for key, at_ms in expected.items() if at_ms <= now_ms)
                assert sorted(found.expired(now_ms)) == sorted(key for _, key in due)
                for _, key in due:
                    del expected[key]
            assert len(found) == len(expected)
            due_ms = found.due_ms
            assert (due_ms is None) == (not expected)
            assert due_ms is None or due_ms <= min(expected.values())
    finally:
        deadlines.DROPPED_MAX = before


def test_keys_that_come_and_go_take_no_memory() -> None:
    found = Deadlines()
    for number in range(20_000):
        found.set(f"member-{number}", 1_800_000 + number)
        found.drop(f"member-{number}")
    assert len(found._heap) <= deadlines.DROPPED_MAX + 2
    assert len(found._queued_ms) <= deadlines.DROPPED_MAX + 2
