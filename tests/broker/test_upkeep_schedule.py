"""The queue of due times, compared with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.services.broker.shard.shard_upkeep import UpkeepSchedule
from tidelog.storage.layout import TopicPartition

PLACES = [TopicPartition(f"{topic:032x}", partition) for topic in range(2) for partition in range(3)]
PLACE, TIME_MS = st.sampled_from(PLACES), st.integers(0, 50)


class ScheduleMachine(RuleBasedStateMachine):
    """Sets, removes and queries entries in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = UpkeepSchedule()
        self.due: dict[TopicPartition, int] = {}
        self.unknown: dict[TopicPartition, None] = {}

    @rule(place=PLACE, due_at_ms=st.none() | TIME_MS)
    def set(self, place: TopicPartition, due_at_ms: int | None) -> None:
        self.schedule.set(place, due_at_ms)
        self.unknown.pop(place, None)
        self.due.pop(place, None)
        if due_at_ms is not None:
            self.due[place] = due_at_ms

    @rule(place=PLACE)
    def set_unknown(self, place: TopicPartition) -> None:
        self.schedule.set_unknown(place)
        self.due.pop(place, None)
        self.unknown.setdefault(place)

    @rule(place=PLACE)
    def forget(self, place: TopicPartition) -> None:
        self.schedule.forget(place)
        self.due.pop(place, None)
        self.unknown.pop(place, None)

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
        schedule.set(TopicPartition("11" * 16, number), due_at_ms)
    came = []
    while first := schedule.first():
        came.append(first[0])
        schedule.forget(first[1])
    assert came == sorted(times_ms)


def test_a_partition_that_is_set_again_and_again_takes_no_more_room() -> None:
    schedule = UpkeepSchedule()
    for due_at_ms in range(10_000):
        schedule.set(PLACES[0], due_at_ms)
    assert schedule.first() == (9_999, PLACES[0])
    assert schedule.queued < 100
