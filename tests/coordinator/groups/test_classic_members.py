"""Classic groups: SyncGroup, heartbeats, commits, leaving, descriptions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.coordinator.groups.classic_group import (
    INITIAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicGroup,
    again,
    assignment,
    beat,
    commit,
    join,
    leave,
    noted,
    subscription,
    sync,
)

from tidelog.coordinator.groups.classic_rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from tidelog.storage.errors import (
    GroupNotEmpty,
    MemberFenced,
    RebalanceInProgress,
    UnknownMember,
    WrongGroupKind,
)
from tidelog.wire.classic_groups import LeaveGroup, LeavingMember, MemberAssignment
from tidelog.wire.groups import CommitOffsets, Done, FetchOffsets, TopicPartitions


def test_members_get_what_the_leader_assigned_to_them(group: ClassicGroup) -> None:
    joined = [group.send(join()) for _ in range(3)]
    for member_id, synced in group.sync(group.answers(joined)).items():
        assert synced.assignment == f"1/{member_id}".encode()
    assert group.state == "Stable"


def test_a_member_that_the_leader_leaves_out_has_no_partitions(group: ClassicGroup) -> None:
    ticket = group.send(join())
    group.run(INITIAL_MS)
    joined = group.answer(ticket)
    assert group.call(replace(sync(joined), assignments=(MemberAssignment("gone", b"x"),))).assignment == b""


def test_a_sync_in_a_stable_group_repeats_the_assignment(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    assert group.call(replace(sync(a), assignments=())).assignment == f"1/{a.member_id}".encode()


def test_a_rebalance_ends_the_wait_for_the_leader(group: ClassicGroup) -> None:
    tickets = [group.send(join()) for _ in range(2)]
    follower = next(j for j in group.answers(tickets) if j.leader != j.member_id)
    waiting = group.send(sync(follower))
    group.send(join())
    with pytest.raises(RebalanceInProgress):
        group.answer(waiting)


def test_a_leader_that_does_not_sync_is_removed(group: ClassicGroup) -> None:
    tickets = [group.send(join()) for _ in range(2)]
    joined = group.answers(tickets)
    leader = next(j for j in joined if j.leader == j.member_id)
    follower = next(j for j in joined if j.leader != j.member_id)
    waiting = group.send(sync(follower))
    for _ in range(REBALANCE_MS // 5_000):
        if waiting not in group.replies:
            group.send(beat(leader))
        group.run(5_000)
    with pytest.raises(RebalanceInProgress):
        group.answer(waiting)
    assert group.call(again(follower)).leader == follower.member_id
    with pytest.raises(UnknownMember):
        group.call(beat(leader))
    assert noted(group, "session_ended") == [
        f"member {leader.member_id} (client unnamed) did not sync in time: its partitions go to others"
    ]


def test_a_sync_of_another_generation_or_protocol_is_refused(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    with pytest.raises(MemberFenced, match="generation 1, not 7"):
        group.call(replace(sync(a), generation=7))
    with pytest.raises(WrongGroupKind):
        group.call(replace(sync(a), protocol="roundrobin"))
    with pytest.raises(WrongGroupKind):
        group.call(replace(sync(a), protocol_type="connect"))
    with pytest.raises(UnknownMember):
        group.call(replace(sync(a), member_id="nobody"))


def test_a_member_without_heartbeats_is_removed_and_the_others_join_again(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    for _ in range(2):
        group.run(SESSION_MS // 2)
        if group.state == "Stable":
            group.call(beat(b))
    with pytest.raises(RebalanceInProgress):
        group.call(beat(b))
    with pytest.raises(UnknownMember):
        group.call(beat(a))
    assert noted(group, "session_ended") == [
        f"member {a.member_id} (client a) was silent for its session timeout: its partitions go to others"
    ]


def test_each_new_assignment_is_noted_and_a_member_that_leaves_is_not(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    group.call(leave(b))
    group.sync([group.call(again(a))])
    assert noted(group, "rebalanced") == [
        f"generation 1 has 2 members; {a.member_id} assigned the partitions",
        f"generation 2 has 1 members; {a.member_id} assigned the partitions",
    ]
    assert not noted(group, "session_ended")


def test_heartbeats_of_another_generation_are_refused(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    with pytest.raises(MemberFenced):
        group.call(beat(a, generation=2))


def test_a_member_that_waits_for_a_barrier_needs_no_heartbeat(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    first = group.send(again(a))
    for _ in range(5):
        group.run(SESSION_MS // 2)
        group.send(beat(b))
    group.send(again(b))
    assert group.answer(first).generation == 2


def test_a_new_member_does_not_wait_for_ever() -> None:
    group = ClassicGroup()
    a = group.stable("a")["a"]
    group.call(again(a, rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS, topics=("web", "clicks")))
    new = group.send(join())
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        group.send(beat(a, generation=2))
        group.run(5_000)
    with pytest.raises(UnknownMember):
        group.answer(new)


def test_only_members_of_the_generation_commit(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    group.members.check_commit(commit(a))
    group.members.check_fetch(FetchOffsets(member_id=a.member_id, member_epoch=1))
    with pytest.raises(MemberFenced):
        group.members.check_commit(commit(a, generation=0))
    with pytest.raises(MemberFenced):
        group.members.check_fetch(FetchOffsets(member_id=a.member_id, member_epoch=3))
    with pytest.raises(UnknownMember):
        group.members.check_commit(commit(a, member_id="nobody"))
    with pytest.raises(GroupNotEmpty):
        group.members.check_commit(CommitOffsets(offsets=()))


def test_members_commit_while_they_have_to_join_again_and_not_between_join_and_sync(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    group.send(join())
    group.members.check_commit(commit(a))
    second = group.call(again(a))
    with pytest.raises(RebalanceInProgress):
        group.members.check_commit(commit(second))


def test_a_member_that_leaves_makes_the_others_join_again(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    assert group.call(leave(a)) == Done()
    assert group.call(again(b)).generation == 2


def test_several_members_leave_together_or_none(group: ClassicGroup) -> None:
    a, b, c = group.stable("a", "b", "c").values()
    with pytest.raises(UnknownMember):
        group.call(LeaveGroup(members=(LeavingMember(a.member_id), LeavingMember("nobody"))))
    assert group.call(beat(a)) == Done()
    group.call(leave(a, b))
    assert [m.member_id for m in group.call(again(c)).members] == [c.member_id]


def test_the_last_member_that_leaves_empties_the_group(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    group.call(leave(a))
    assert (group.state, len(group.members)) == ("Empty", 0)
    assert group.context.head is not None
    assert group.context.head.emptied_at_ms == group.context.moment.now_ms
    group.crash()
    assert group.state == "Empty"
    assert group.stable("b")["b"].generation == 3


def test_a_waiting_join_of_a_member_that_leaves_is_refused(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    waiting = group.send(again(a))
    group.call(leave(a))
    with pytest.raises(UnknownMember):
        group.answer(waiting)
    assert group.call(again(b)).generation == 2


def test_topics_in_use_are_known(group: ClassicGroup) -> None:
    group.stable("a")
    assert group.members.subscribes("web")
    assert not group.members.subscribes("clicks")


def test_an_unreadable_subscription_counts_as_any_topic() -> None:
    group = ClassicGroup()
    group.send(join(metadata=b"\x00"))
    assert group.members.subscribes("anything")


def test_a_description_has_the_topics_and_partitions_of_consumers(group: ClassicGroup) -> None:
    ticket = group.send(join(client_id="app", client_host="10.0.0.7"))
    group.run(INITIAL_MS)
    joined = group.answer(ticket)
    group.call(replace(sync(joined), assignments=(MemberAssignment(joined.member_id, assignment("web", 0, 3)),)))
    described = group.members.describe()
    assert (described.kind, described.state, described.assignor) == ("classic", "Stable", "range")
    (member,) = described.members
    assert member.topics == ("web",)
    assert member.assignment == (TopicPartitions("web", (0, 3)),)
    assert (member.client_id, member.client_host, member.metadata) == ("app", "10.0.0.7", subscription("web"))
