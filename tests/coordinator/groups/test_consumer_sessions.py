"""Consumer groups: members that leave, are silent, come back, or begin anew."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.stepped_group import SteppedGroup, settle, web

from tidelog.storage.errors import (
    InstanceInUse,
    Invalid,
    UnknownMember,
)
from tidelog.wire.groups import STATIC_LEAVE_EPOCH, DescribeGroup


def test_the_partitions_of_a_member_that_leaves_are_free_at_once() -> None:
    group = SteppedGroup()
    a, b = group.member("a"), group.member("b")
    settle(a, b)
    a.leave()
    assert b.beat().assignment == web(0, 1, 2, 3)
    with pytest.raises(UnknownMember):
        a.beat()


def test_a_session_ends_without_heartbeats_and_not_before() -> None:
    group = SteppedGroup()
    a, b = group.member("a", session_timeout_ms=6_000), group.member("b", session_timeout_ms=60_000)
    settle(a, b)
    group.wait(5_999)
    b.beat()
    assert len(group.call(DescribeGroup()).members) == 2
    assert group.machine.due_ms == 6_000
    group.wait(1)
    assert b.beat().assignment == web(0, 1, 2, 3)


def test_sessions_are_extended() -> None:
    group = SteppedGroup()
    member = group.member("a", session_timeout_ms=6_000)
    group.now_ms += 5_000
    group.machine.extend_sessions(group.moment)
    group.wait(5_000)
    member.beat()


def test_a_new_coordinator_lets_everybody_go_on() -> None:
    group = SteppedGroup()
    members = [group.member(name) for name in "ab"]
    settle(*members)
    before = [(member.epoch, member.numbers) for member in members]
    group.now_ms += 100_000
    group.reload()
    settle(*members)
    assert [(member.epoch, member.numbers) for member in members] == before
    assert group.changes == []


def test_a_static_member_that_comes_back_gets_its_partitions() -> None:
    group = SteppedGroup()
    a, b = group.member("a", instance_id="i"), group.member("b")
    settle(a, b)
    mine, epoch = a.answer.assignment, b.epoch
    a.leave(STATIC_LEAVE_EPOCH)
    b.beat()
    again = group.member("a2", instance_id="i")
    assert again.answer.assignment == mine
    settle(again, b)
    assert (again.answer.assignment, b.epoch) == (mine, epoch)
    with pytest.raises(InstanceInUse):
        a.beat(instance_id="i")


def test_a_static_member_that_does_not_come_back_loses_its_partitions_after_its_session() -> None:
    group = SteppedGroup()
    a, b = group.member("a", instance_id="i", session_timeout_ms=5_000), group.member("b")
    settle(a, b)
    a.leave(STATIC_LEAVE_EPOCH)
    assert len(b.beat().assignment[0].partitions) == 2
    group.wait(5_000)
    assert b.beat().assignment == web(0, 1, 2, 3)


def test_two_living_members_cannot_have_one_instance_id() -> None:
    group = SteppedGroup()
    group.member("a", instance_id="i")
    with pytest.raises(InstanceInUse):
        group.member("b", instance_id="i")


def test_a_member_without_an_instance_id_cannot_leave_for_a_while() -> None:
    with pytest.raises(Invalid):
        SteppedGroup().member("a").leave(STATIC_LEAVE_EPOCH)


def test_the_partitions_of_a_static_member_that_is_away_go_elsewhere_without_its_confirmation() -> None:
    group = SteppedGroup()
    a = group.member("a", instance_id="i")
    settle(a)
    a.leave(STATIC_LEAVE_EPOCH)
    b = group.member("b")
    assert b.beat().assignment == web(2, 3)
