"""A member of a group as a pure machine: joins, rebalances, fencing, pauses and leaving, against a scripted
coordinator."""

from __future__ import annotations

import pytest

from tidelog.client.consumed import TopicPartition, flattened, grouped
from tidelog.client.membership import RETRY_S, Change, Membership, Phase, Subscription
from tidelog.storage.errors import (
    GroupFull,
    InstanceInUse,
    MemberFenced,
    TidelogError,
    Unavailable,
    UnknownMember,
)
from tidelog.wire.groups import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, Heartbeat, HeartbeatAnswer

INTERVAL_S = 3.0
MAX_POLL_S = 60.0
A, B, C = (TopicPartition("web", number) for number in range(3))


def member(instance_id: str | None = None) -> Membership:
    return Membership("me", Subscription(topics=("web",), instance_id=instance_id), MAX_POLL_S, 0.0)


def beat(one: Membership, now: float) -> Heartbeat:
    heartbeat = one.next_heartbeat(now)
    assert heartbeat is not None
    return heartbeat


def answer(one: Membership, now: float, epoch: int, *assignment: TopicPartition) -> None:
    one.on_answer(HeartbeatAnswer("me", epoch, int(INTERVAL_S * 1_000), grouped(assignment)), now)


def joined(*assignment: TopicPartition, instance_id: str | None = None) -> Membership:
    """A member that has taken `assignment` and confirmed it at time 0."""
    one = member(instance_id)
    beat(one, 0.0)
    answer(one, 0.0, 1, *assignment)
    if change := one.next_change():
        one.apply(change, 0.0)
        beat(one, 0.0)
        answer(one, 0.0, 1, *assignment)
    assert one.owned == set(assignment)
    return one


def test_it_joins_with_its_subscription_and_confirms_what_it_was_given() -> None:
    one = member()
    first = beat(one, 0.0)
    assert (first.member_id, first.member_epoch, first.topics, first.owned) == ("me", JOIN_EPOCH, ("web",), ())
    assert one.next_heartbeat(0.0) is None, "one at a time"
    answer(one, 0.1, 1, A, B)
    assert one.next_change() == Change(assigned=frozenset({A, B}))
    assert one.owned == frozenset()
    one.apply(Change(assigned=frozenset({A, B})), 0.2)
    second = beat(one, 0.2)
    assert (second.member_epoch, second.topics, flattened(second.owned or ())) == (1, None, {A, B})
    answer(one, 0.3, 1, A, B)
    assert one.next_heartbeat(0.3 + INTERVAL_S - 0.01) is None
    assert beat(one, 0.3 + INTERVAL_S).owned is None, "nothing has changed"


def test_a_revocation_is_confirmed_only_when_the_program_has_carried_it_out() -> None:
    one = joined(A, B)
    beat(one, INTERVAL_S)
    answer(one, INTERVAL_S, 2, A)
    assert one.next_change() == Change(revoked=frozenset({B}))
    assert beat(one, 2 * INTERVAL_S).owned is None, "it still reads both"
    answer(one, 2 * INTERVAL_S, 2, A)
    one.apply(Change(revoked=frozenset({B})), 2 * INTERVAL_S + 1)
    assert beat(one, 2 * INTERVAL_S + 1).owned == grouped({A})


def test_revocations_come_before_what_is_gained() -> None:
    one = joined(A, B)
    beat(one, INTERVAL_S)
    answer(one, INTERVAL_S, 2, B, C)
    change = one.next_change()
    assert change == Change(revoked=frozenset({A}))
    one.apply(change, INTERVAL_S)
    assert one.next_change() == Change(assigned=frozenset({C}))


def test_partitions_that_the_coordinator_took_back_meanwhile_are_not_taken() -> None:
    one = member()
    beat(one, 0.0)
    answer(one, 0.0, 1, A, B)
    change = one.next_change()
    beat(one, INTERVAL_S)
    answer(one, INTERVAL_S, 2, A)
    assert change is not None
    one.apply(change, INTERVAL_S)
    assert one.owned == {A}


@pytest.mark.parametrize("error", [MemberFenced("behind"), UnknownMember("gone")])
def test_a_member_that_was_taken_out_loses_everything_and_joins_again(error: TidelogError) -> None:
    one = joined(A, B)
    beat(one, INTERVAL_S)
    one.on_error(error, INTERVAL_S)
    assert one.next_change() == Change(lost=frozenset({A, B}))
    again = beat(one, INTERVAL_S)
    assert (again.member_id, again.member_epoch, again.topics, again.owned) == ("me", JOIN_EPOCH, ("web",), ())
    answer(one, INTERVAL_S, 7, A)
    assert one.next_change() == Change(lost=frozenset({A, B})), "the loss is told first"
    one.apply(Change(lost=frozenset({A, B})), INTERVAL_S)
    assert one.next_change() == Change(assigned=frozenset({A}))


def test_an_outage_loses_nothing_and_is_tried_again() -> None:
    one = joined(A)
    beat(one, INTERVAL_S)
    one.on_error(Unavailable("no broker"), INTERVAL_S)
    assert one.next_change() is None
    assert one.owned == {A}
    assert one.next_heartbeat(INTERVAL_S + RETRY_S - 0.01) is None
    assert beat(one, INTERVAL_S + RETRY_S).member_epoch == 1


def test_a_full_group_is_tried_again_when_it_says_so() -> None:
    one = member()
    beat(one, 0.0)
    one.on_error(GroupFull("full", retry_after_s=9.0), 0.0)
    assert one.next_heartbeat(8.9) is None
    assert beat(one, 9.0).member_epoch == JOIN_EPOCH


def test_an_error_that_no_repetition_mends_ends_the_membership() -> None:
    one = member("pod-1")
    beat(one, 0.0)
    one.on_error(InstanceInUse("pod-1 lives"), 0.0)
    assert isinstance(one.failure, InstanceInUse)
    assert one.due_at is None
    assert not one.leave(1.0)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, LEAVE_EPOCH), ("pod-1", STATIC_LEAVE_EPOCH)])
def test_without_polls_it_leaves_and_the_next_poll_joins_again(instance_id: str | None, epoch: int) -> None:
    one = joined(A, instance_id=instance_id)
    one.polled(10.0)
    now = INTERVAL_S
    while now < 10.0 + MAX_POLL_S:
        assert beat(one, now).member_epoch == 1, "while the program works, heartbeats go on"
        answer(one, now, 1, A)
        now += INTERVAL_S
    assert beat(one, 10.0 + MAX_POLL_S).member_epoch == epoch
    assert one.phase is Phase.IDLE
    assert one.due_at is None
    answer(one, 71.0, epoch)
    one.polled(200.0)
    assert one.next_change() == Change(lost=frozenset({A}))
    assert beat(one, 200.0).member_epoch == JOIN_EPOCH


def test_a_late_answer_after_the_pause_changes_nothing() -> None:
    one = joined(A)
    beat(one, INTERVAL_S)
    one.on_error(Unavailable("slow"), MAX_POLL_S)
    assert beat(one, MAX_POLL_S + RETRY_S).member_epoch == LEAVE_EPOCH
    answer(one, MAX_POLL_S + RETRY_S, 5, A, B)
    assert one.phase is Phase.IDLE
    assert one.target == frozenset()


def test_leaving_waits_for_a_heartbeat_that_is_under_way() -> None:
    one = joined(A)
    beat(one, INTERVAL_S)
    assert one.leave(INTERVAL_S)
    assert one.next_heartbeat(INTERVAL_S) is None
    answer(one, INTERVAL_S, 1, A)
    assert one.phase is Phase.LEAVING
    assert beat(one, INTERVAL_S).member_epoch == LEAVE_EPOCH
    answer(one, INTERVAL_S, LEAVE_EPOCH)
    assert one.phase is Phase.LEFT


def test_a_member_that_never_joined_has_nothing_to_leave() -> None:
    assert not member().leave(0.0)


def test_a_new_subscription_is_told_at_once_also_during_a_heartbeat() -> None:
    one = joined(A)
    beat(one, INTERVAL_S)
    one.resubscribe(Subscription(topics=("web", "app")), INTERVAL_S)
    answer(one, INTERVAL_S, 1, A)
    one.hurry(INTERVAL_S)
    told = beat(one, INTERVAL_S)
    assert told.topics == ("web", "app")
    answer(one, INTERVAL_S, 2, A)
    assert beat(one, 2 * INTERVAL_S).topics is None


def test_a_program_that_works_on_its_records_need_not_poll_but_only_a_poll_joins_again() -> None:
    one = joined(A)
    one.worked(MAX_POLL_S - 1)
    assert beat(one, MAX_POLL_S + 1).member_epoch == 1
    answer(one, MAX_POLL_S + 1, 1, A)
    assert beat(one, 2 * MAX_POLL_S).member_epoch == LEAVE_EPOCH
    one.worked(2 * MAX_POLL_S)
    assert one.phase is Phase.IDLE
    assert one.takes_away
