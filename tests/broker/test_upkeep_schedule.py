"""The queue of due times, compared with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.services.broker.shard.upkeep_schedule import UpkeepSchedule

TOPIC_IDS = [f"{topic:032x}" for topic in range(6)]
TOPIC_ID, TIME_MS = st.sampled_from(TOPIC_IDS), st.integers(0, 50)


class ScheduleMachine(RuleBasedStateMachine):
    """Sets, removes and queries entries in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = UpkeepSchedule()
        self.due: dict[str, int] = {}
        self.unknown: dict[str, None] = {}

    @rule(topic_id=TOPIC_ID, due_at_ms=st.none() | TIME_MS)
    def set(self, topic_id: str, due_at_ms: int | None) -> None:
        self.schedule.set(topic_id, due_at_ms)
        self.unknown.pop(topic_id, None)
        self.due.pop(topic_id, None)
        if due_at_ms is not None:
            self.due[topic_id] = due_at_ms

    @rule(topic_id=TOPIC_ID)
    def set_unknown(self, topic_id: str) -> None:
        self.schedule.set_unknown(topic_id)
        self.due.pop(topic_id, None)
        self.unknown.setdefault(topic_id)

    @rule(topic_id=TOPIC_ID)
    def forget(self, topic_id: str) -> None:
        self.schedule.forget(topic_id)
        self.due.pop(topic_id, None)
        self.unknown.pop(topic_id, None)

    @invariant()
    def it_is_the_model(self) -> None:
        first = self.schedule.first()
        assert (first[0] if first else None) == min(self.due.values(), default=None)
        assert first is None or self.due[first[1]] == first[0]
        assert self.schedule.unknown() == next(iter(self.unknown), None)
        assert len(self.schedule) == len(self.due) + len(self.unknown)


TestScheduleMachine = ScheduleMachine.TestCase


@given(st.lists(TIME_MS, min_size=1, max_size=30))
def test_they_come_in_the_order_of_their_times(times_ms: list[int]) -> None:
    schedule = UpkeepSchedule()
    for number, due_at_ms in enumerate(times_ms):
        schedule.set(f"{number:032x}", due_at_ms)
    came = []
    while first := schedule.first():
        came.append(first[0])
        schedule.forget(first[1])
    assert came == sorted(times_ms)


def test_a_topic_that_is_set_again_and_again_takes_no_more_room() -> None:
    schedule = UpkeepSchedule()
    for due_at_ms in range(10_000):
        schedule.set(TOPIC_IDS[0], due_at_ms)
    assert schedule.first() == (9_999, TOPIC_IDS[0])
    assert schedule.queued < 100
