"""Classic groups: members with an instance id."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.coordinator.groups.classic_group import (
    INITIAL_MS,
    LIMITS,
    REBALANCE_MS,
    ClassicGroup,
    again,
    beat,
    join,
    leave,
    sync,
)

from tidelog.storage.errors import (
    InstanceInUse,
    MemberFenced,
    RebalanceInProgress,
    UnknownMember,
)
from tidelog.wire.classic_groups import LeaveGroup, LeavingMember
from tidelog.wire.groups import Done


def test_a_static_member_comes_back_without_a_rebalance(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b", instance=True).values()
    follower, leader = (a, b) if b.leader == b.member_id else (b, a)
    name = "a" if follower is a else "b"
    back = group.call(join(instance_id=name, userdata=b"owns nothing now"))
    assert (back.generation, back.skip_assignment, back.leader) == (1, False, leader.member_id)
    assert group.call(sync(back)).assignment == f"1/{follower.member_id}".encode()
    assert group.call(beat(leader)) == Done()
    with pytest.raises(InstanceInUse, match="stop this one"):
        group.call(beat(follower, instance_id=name))
    with pytest.raises(UnknownMember):
        group.call(beat(follower))


def test_a_static_leader_comes_back_and_keeps_the_assignment(group: ClassicGroup) -> None:
    a = group.stable("a", instance=True)["a"]
    back = group.call(join(instance_id="a"))
    assert (back.skip_assignment, back.leader) == (True, back.member_id)
    assert [m.member_id for m in back.members] == [back.member_id]
    group.crash()
    assert group.call(replace(sync(back), assignments=())).assignment == f"1/{a.member_id}".encode()


def test_a_static_member_that_comes_back_with_other_topics_starts_a_rebalance(group: ClassicGroup) -> None:
    group.stable("a", "b", instance=True)
    group.send(join(instance_id="a", topics=("clicks",)))
    assert group.state == "PreparingRebalance"


def test_a_static_member_that_comes_back_between_join_and_sync_starts_a_rebalance(group: ClassicGroup) -> None:
    tickets = [group.send(join(instance_id=name)) for name in "ab"]
    joined = group.answers(tickets)
    waiting = group.send(replace(sync(joined[1]), assignments=()))
    group.send(join(instance_id="a"))
    assert group.state == "PreparingRebalance"
    if joined[1].leader != joined[1].member_id:
        with pytest.raises(RebalanceInProgress):
            group.answer(waiting)


def test_the_waiting_request_of_a_replaced_static_member_is_fenced(group: ClassicGroup) -> None:
    first = group.send(join(instance_id="a"))
    second = group.send(join(instance_id="a"))
    with pytest.raises(InstanceInUse):
        group.answer(first)
    group.run(INITIAL_MS)
    assert group.answer(second).generation == 1


def test_a_static_member_keeps_its_place_until_its_session_ends(group: ClassicGroup) -> None:
    group.limits = LIMITS
    static = group.send(join(instance_id="a", session_timeout_ms=300_000))
    dynamic = group.send(join())
    a, b = group.answers([static, dynamic])
    group.sync([a, b])
    first = group.send(again(b, topics=("web", "clicks")))
    group.run(REBALANCE_MS)
    second = group.answer(first)
    assert {m.member_id for m in second.members} == {a.member_id, b.member_id}
    with pytest.raises(MemberFenced):
        group.call(beat(a))
    group.sync([second])
    assert group.call(join(instance_id="a")).generation == 2


def test_without_anybody_to_lead_a_rebalance_waits_for_static_members(group: ClassicGroup) -> None:
    static = group.send(join(instance_id="a", session_timeout_ms=300_000))
    dynamic = group.send(join())
    a, b = group.answers([static, dynamic])
    group.sync([a, b])
    group.call(leave(b))
    group.run(REBALANCE_MS + 1)
    assert group.state == "PreparingRebalance"
    assert group.call(again(a, instance_id="a")).generation == 2
    assert group.state == "CompletingRebalance"


def test_a_static_member_leaves_by_its_instance_id(group: ClassicGroup) -> None:
    group.stable("a", instance=True)
    group.call(LeaveGroup(members=(LeavingMember(instance_id="a"),)))
    assert group.state == "Empty"
    with pytest.raises(UnknownMember):
        group.call(LeaveGroup(members=(LeavingMember(instance_id="a"),)))
