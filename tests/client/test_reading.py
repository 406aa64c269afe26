"""What a consumer fetches and gives out: order, turns, fairness, bounds, errors and losses, without I/O."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog.client.consumed import TopicPartition
from tidelog.client.fetched_parts import Body, FetchPlan, PartOutcome
from tidelog.client.reading import FETCHES_PER_BROKER_MAX, RETRY_S, Reading
from tidelog.storage.errors import Corrupt, NotLeader, OutOfRange, RecordsLost, TidelogError, Unavailable

A, B, C, D = (TopicPartition("web", number) for number in range(4))
BUFFER = 1_000


def anywhere(_: TopicPartition) -> str:
    return ""


def reading(*partitions: TopicPartition, at: int | str = 0, reset_to: str | None = None) -> Reading:
    found = Reading(BUFFER, reset_to)
    found.assign(dict.fromkeys(partitions, at))
    return found


def planned(one: Reading, now: float = 0.0) -> FetchPlan:
    plan = one.plan(now, anywhere)
    assert plan is not None
    return plan


def body(first: int = 0, rows: int = 1, size: int = 10) -> Body:
    return Body(size, lambda _: pa.table({"offset": range(first, first + rows)}))


def answer(one: Reading, plan: FetchPlan, records: int = 5, size: int = 10) -> None:
    """`records` more for each partition."""
    outcomes = {}
    for part in plan.parts:
        assert isinstance(part.at, int)
        outcomes[part.partition] = PartOutcome(part.at + records, 100, 0)
    one.fetched(plan, outcomes, body(size=size), 0.0)


def refuse(one: Reading, error: TidelogError, now: float = 0.0) -> None:
    plan = planned(one, now)
    one.fetched(plan, {part.partition: PartOutcome(0, error=error) for part in plan.parts}, body(), now)


def test_parts_come_in_order_and_move_the_position() -> None:
    one = reading(A)
    answer(one, planned(one))
    answer(one, planned(one))
    first, second = one.next_part(), one.next_part()
    assert first is not None
    assert second is not None
    assert (first.outcome.next_offset, second.outcome.next_offset) == (5, 10)
    assert one.positions == {A: 10}
    assert one.next_part() is None


def test_a_partition_is_in_one_fetch_at_a_time_and_a_broker_in_two() -> None:
    one = reading(A, B, C, D)
    first, second = planned(one), planned(one)
    assert {part.partition for part in first.parts} == {A, B}
    assert {part.partition for part in second.parts} == {C, D}
    assert one.plan(0.0, anywhere) is None
    answer(one, first)
    assert {part.partition for part in planned(one).parts} == {A, B}


def test_each_leader_is_asked_for_its_partitions() -> None:
    one = reading(A, B)
    plans = [one.plan(0.0, lambda partition: f"broker-{partition.partition}") for _ in range(2)]
    assert {(plan.leader, plan.parts[0].partition) for plan in plans if plan} == {("broker-0", A), ("broker-1", B)}


def test_partitions_that_had_records_come_last_in_the_next_fetch() -> None:
    one = reading(A, B)
    plans = [planned(one) for _ in range(FETCHES_PER_BROKER_MAX)]
    one.fetched(plans[0], {A: PartOutcome(5, 9, 0)}, body(), 0.0)
    one.fetched(plans[1], {B: PartOutcome(0, 0, 0)}, body(), 0.0)
    assert planned(one).parts[0].partition == B


def test_fetching_stops_while_the_buffer_is_full() -> None:
    one = reading(A)
    answer(one, planned(one), size=BUFFER)
    assert one.plan(0.0, anywhere) is None
    assert one.next_part() is not None
    assert one.plan(0.0, anywhere) is not None


def test_a_body_of_several_parts_counts_until_the_last_of_them_is_taken() -> None:
    one = reading(A, B)
    one.drop([B])
    one.assign({B: 0})
    plans = [planned(one), planned(one)]
    shared = body(size=BUFFER)
    one.fetched(plans[0], {A: PartOutcome(5)}, shared, 0.0)
    one.fetched(plans[1], {B: PartOutcome(5)}, shared, 0.0)
    assert one.next_part() is not None
    assert one.plan(0.0, anywhere) is None
    assert one.next_part() is not None
    assert one.plan(0.0, anywhere) is not None


def test_after_a_seek_what_was_fetched_before_is_dropped() -> None:
    one = reading(A)
    answer(one, planned(one))
    under_way = planned(one)
    one.seek(A, 50)
    assert one.next_part() is None
    assert planned(one).parts[0].at == 50
    answer(one, under_way)
    assert one.next_part() is None
    assert one.positions == {A: 50}


def test_a_paused_partition_is_not_fetched_and_goes_on_where_it_was() -> None:
    one = reading(A)
    answer(one, planned(one))
    assert one.next_part() is not None
    answer(one, planned(one))
    one.pause(A, paused=True)
    assert one.next_part() is None
    assert one.plan(0.0, anywhere) is None
    assert one.paused == {A}
    one.pause(A, paused=False)
    assert planned(one).parts[0].at == 5


def test_a_position_in_words_is_known_after_the_first_answer_and_survives_a_pause() -> None:
    one = reading(A, at="latest")
    one.fetched(planned(one), {A: PartOutcome(45, 45, 0)}, body(first=42, rows=3), 0.0)
    assert one.positions == {A: 42}
    one.pause(A, paused=True)
    one.pause(A, paused=False)
    assert planned(one).parts[0].at == 42


def test_what_the_program_broke_off_comes_again() -> None:
    one = reading(A)
    answer(one, planned(one))
    part = one.next_part()
    assert part is not None
    one.give_back(part, 3)
    assert one.positions == {A: 3}
    again = one.next_part()
    assert again is not None
    assert (again.begin, again.outcome.next_offset) == (3, 5)
    assert one.positions == {A: 5}


def test_a_part_that_was_given_out_whole_or_belongs_to_an_earlier_turn_does_not_come_again() -> None:
    one = reading(A)
    answer(one, planned(one))
    part = one.next_part()
    assert part is not None
    one.give_back(part, 5)
    assert one.next_part() is None
    one.seek(A, 0)
    one.give_back(part, 3)
    assert one.next_part() is None


def test_only_what_earlier_polls_gave_out_is_done() -> None:
    one = reading(A)
    answer(one, planned(one))
    assert one.next_part() is not None
    assert one.commits(only_done=True) == {}
    assert one.commits(only_done=False) == {A: 5}
    one.done()
    assert one.commits(only_done=True) == {A: 5}


def test_a_loss_is_skipped_and_told() -> None:
    one = reading(A)
    refuse(one, RecordsLost("wal/1", "gone", first_offset=0, next_offset=7))
    part = one.next_part()
    assert part is not None
    assert part.lost is not None
    assert one.positions == {A: 7}
    assert planned(one).parts[0].at == 7


def test_a_position_that_the_log_no_longer_holds_is_reset_or_told() -> None:
    gone = OutOfRange("gone", log_start_offset=30, high_watermark=60)
    one = reading(A, reset_to="earliest")
    refuse(one, gone)
    assert planned(one).parts[0].at == "earliest"
    alone = reading(A)
    refuse(alone, gone)
    part = alone.next_part()
    assert part is not None
    assert part.outcome.error is gone


@pytest.mark.parametrize("error", [Unavailable("away"), NotLeader("moved", leader="http://b:1", retry_after_s=0.1)])
def test_an_outage_of_a_partition_is_tried_again_after_a_moment(error: TidelogError) -> None:
    one = reading(A)
    refuse(one, error)
    assert one.plan(RETRY_S - 0.01, anywhere) is None
    assert one.retry_at(0.0) == RETRY_S
    assert planned(one, RETRY_S).parts[0].at == 0
    assert one.next_part() is None


def test_an_error_is_told_once_and_the_partition_is_fetched_again_after_it() -> None:
    one = reading(A)
    refuse(one, Corrupt("segment 1", "truncated"))
    assert one.plan(99.0, anywhere) is None
    part = one.next_part()
    assert part is not None
    assert isinstance(part.outcome.error, Corrupt)
    assert one.plan(99.0, anywhere) is not None


def test_a_failed_fetch_is_repeated_or_told() -> None:
    one = reading(A)
    one.failed(planned(one), Unavailable("no broker"), 0.0, fatal=False)
    assert one.next_part() is None
    one.failed(planned(one, RETRY_S), Unavailable("no broker"), RETRY_S, fatal=True)
    part = one.next_part()
    assert part is not None
    assert isinstance(part.outcome.error, Unavailable)
