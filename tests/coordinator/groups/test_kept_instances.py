"""What a front door keeps of its clients in a group."""

from __future__ import annotations

import msgspec
import pytest
from tests.coordinator.groups.stepped_group import SteppedGroup, settle

from tidelog.coordinator.groups.group_step import GroupLimits
from tidelog.storage.errors import AlreadyExists, Conflict, Overloaded, StaleMemberEpoch, UnknownMember
from tidelog.wire.groups import DeleteInstance, InstanceState, ReadInstance, WriteInstance


def write(version: int, data: bytes = b"x", *, name: str = "c1", durable: bool = True) -> WriteInstance:
    return WriteInstance(instance=name, data=data, version=version, idle_timeout_ms=1_000, durable=durable)


def test_a_state_is_created_once_and_replaced_by_version() -> None:
    group = SteppedGroup()
    assert group.call(write(0, b"one")).version == 1
    with pytest.raises(AlreadyExists):
        group.call(write(0, b"one"))
    assert group.call(write(1, b"two")).version == 2
    with pytest.raises(Conflict):
        group.call(write(1, b"three"))
    group.reload()
    assert group.call(ReadInstance(instance="c1")) == InstanceState(b"two", 2)


def test_a_write_whose_answer_was_lost_is_repeated() -> None:
    group = SteppedGroup()
    group.call(write(0))
    group.call(write(1, b"two"))
    assert group.call(write(1, b"two")) == InstanceState(b"two", 2)
    assert group.changes == []


def test_a_write_that_is_not_durable_is_answered_at_once() -> None:
    group = SteppedGroup()
    assert group.reply(write(0)).rests_on == {"parts/g/instances/c1"}
    assert group.reply(write(1, durable=False)).rests_on == frozenset()
    assert group.reply(ReadInstance(instance="c1")).rests_on == frozenset()
    assert group.reply(write(2)).rests_on == {"parts/g/instances/c1"}
    assert group.reply(ReadInstance(instance="c1")).rests_on == {"parts/g/instances/c1"}


def test_a_state_that_nobody_uses_is_dropped() -> None:
    group = SteppedGroup()
    group.call(write(0))
    group.wait(999)
    group.call(ReadInstance(instance="c1"))
    group.wait(999)
    assert not group.machine.idle
    group.wait(1)
    with pytest.raises(UnknownMember):
        group.call(ReadInstance(instance="c1"))
    assert [key for key in group.stored if "instances" in key] == []
    assert group.machine.idle


def test_a_deleted_state_is_gone() -> None:
    group = SteppedGroup()
    group.call(write(0))
    group.call(DeleteInstance(instance="c1"))
    for request in (ReadInstance(instance="c1"), DeleteInstance(instance="c1"), write(1)):
        with pytest.raises(UnknownMember):
            group.call(request)


def test_there_is_a_bound() -> None:
    group = SteppedGroup(GroupLimits(instances_max=1))
    group.call(write(0))
    with pytest.raises(Overloaded):
        group.call(write(0, name="c2"))


def test_a_write_as_a_member_is_its_heartbeat() -> None:
    group = SteppedGroup()
    a = group.member("a", yields=True, session_timeout_ms=10_000)
    settle(a)
    a.beat()
    version = group.call(as_member(write(0), a.epoch)).version
    for _ in range(5):
        group.wait(6_000)
        version = group.call(as_member(write(version), a.epoch)).version
    group.wait(10_000)
    with pytest.raises(StaleMemberEpoch):
        group.call(as_member(write(version), a.epoch))


def test_a_write_as_a_member_whose_assignment_has_changed_is_refused_and_changes_nothing() -> None:
    group = SteppedGroup()
    a = group.member("a", yields=True)
    settle(a)
    former = a.epoch
    assert group.call(as_member(write(0, b"one"), former)).version == 1
    b = group.member("b", yields=True)
    for epoch in (former, former + 1_000):
        with pytest.raises(StaleMemberEpoch):
            group.call(as_member(write(1, b"two"), epoch))
    assert group.call(ReadInstance(instance="c1")) == InstanceState(b"one", 1)
    settle(a, b)
    assert group.call(as_member(write(1, b"two"), a.epoch)).version == 2


def test_a_member_that_has_to_learn_of_more_partitions_is_refused_until_its_heartbeat() -> None:
    group = SteppedGroup()
    a, b = group.member("a", yields=True), group.member("b", yields=True)
    settle(a, b)
    b.leave()
    group.call(write(0))
    with pytest.raises(StaleMemberEpoch):
        group.call(as_member(write(1), a.epoch))
    settle(a)
    assert a.numbers == [0, 1, 2, 3]
    assert group.call(as_member(write(1), a.epoch)).version == 2


def as_member(request: WriteInstance, epoch: int) -> WriteInstance:
    return msgspec.structs.replace(request, member_id="a", member_epoch=epoch, idle_timeout_ms=100_000)
