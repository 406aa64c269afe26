"""A crash leaves the first changes of a group's history, and none of those after them.

At no point is a partition stored with two owners (inv. 8), and the group that is left can go on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest
from tests.coordinator.groups.stepped_group import SteppedGroup, SteppedMember

from tidelog.coordinator.groups.consumer_member import StoredMember
from tidelog.coordinator.groups.group_step import Change, Outcome
from tidelog.coordinator.groups.stored import names_in, parts_prefix
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.errors import TidelogError
from tidelog.wire.groups import STATIC_LEAVE_EPOCH

PARTITIONS = 12
STEPS = 150


class RecordedGroup(SteppedGroup):
    """Remembers all changes in their order."""

    def __init__(self) -> None:
        self.history: list[Change] = []
        self.joins = 0
        super().__init__(web=PARTITIONS)

    def random_step(self, choices: random.Random, members: list[SteppedMember]) -> None:
        self.now_ms += choices.randrange(500)
        if not members or (len(members) < 6 and choices.random() < 0.15):
            self.joins += 1
            name = f"m{self.joins}"
            instance = {"instance_id": name} if choices.random() < 0.4 else {}
            members.append(SteppedMember(self, name, topics=("web",), yields=choices.random() < 0.4, **instance))
        member = choices.choice(members)
        if choices.random() < 0.1:
            static = "instance_id" in member.told and choices.random() < 0.5
            member.leave(*((STATIC_LEAVE_EPOCH,) if static else ()))
            if static:
                member.join()
            else:
                members.remove(member)
            return
        try:
            member.beat()
        except TidelogError:
            member.join()

    def taken(self) -> Outcome:
        outcome = super().taken()
        self.history += outcome.changes
        return outcome


def held_by_members(stored: dict[str, bytes]) -> Iterator[tuple[str, int]]:
    """Each partition that a stored member holds, once for each that holds it."""
    for key, value in stored.items():
        if names_in(key, parts_prefix("g"))[0] == "members":
            member = msgspec.msgpack.decode(value, type=StoredMember)
            for part in member.assigned + member.revoking:
                yield from ((part.topic, number) for number in part.partitions)


def after_each_change(history: list[Change]) -> Iterator[dict[str, bytes]]:
    stored: dict[str, bytes] = {}
    for change in history:
        if isinstance(change, PutKey):
            stored[change.key] = change.value
        else:
            stored.pop(change.key, None)
        yield stored


def random_life(seed: int) -> list[Change]:
    """The changes of a group whose members come, go, stop and come back."""
    choices = random.Random(seed)
    group, members = RecordedGroup(), list[SteppedMember]()
    for _ in range(STEPS):
        group.random_step(choices, members)
    assert len(group.history) > STEPS / 2
    return group.history


@pytest.mark.parametrize("seed", range(10))
def test_at_no_point_a_partition_is_stored_with_two_owners(seed: int) -> None:
    for stored in after_each_change(random_life(seed)):
        held = list(held_by_members(stored))
        assert len(held) == len(set(held))


@pytest.mark.parametrize("seed", range(4))
def test_what_a_crash_leaves_goes_on(seed: int) -> None:
    choices = random.Random(seed)
    for stored in after_each_change(random_life(seed)):
        if choices.random() < 0.1:
            group = SteppedGroup(web=PARTITIONS)
            group.stored = dict(stored)
            group.reload()
            members = [group.member(f"new-{number}") for number in range(2)]
            for _ in range(30):
                group.wait(5_000)
                for member in members:
                    member.beat()
            assert sorted(number for member in members for number in member.numbers) == list(range(PARTITIONS))
