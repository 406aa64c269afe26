"""What a front door keeps of its clients in a group."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.stepped_group import SteppedGroup

from tidelog.coordinator.groups.group_step import GroupLimits
from tidelog.storage.errors import AlreadyExists, Conflict, Overloaded, UnknownMember
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
