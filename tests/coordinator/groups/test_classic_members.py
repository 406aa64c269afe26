"""The rules of classic groups, one by one."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace
from tests.coordinator.groups.classic_group import (
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicGroup,
    again,
    assignment,
    beat,
    join,
    leave,
    subscription,
    sync,
)

from tidelog.coordinator.groups.classic_members import MEMBER_BYTES_MAX
from tidelog.coordinator.groups.classic_rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from tidelog.coordinator.groups.group_step import GroupLimits
from tidelog.storage.errors import (
    GroupFull,
    GroupNotEmpty,
    InstanceInUse,
    Invalid,
    MemberFenced,
    MemberIdRequired,
    RebalanceInProgress,
    TooLarge,
    UnknownMember,
    WrongGroupKind,
)
from tidelog.wire.classic_groups import JoinedGroup, LeaveGroup, LeavingMember, MemberAssignment
from tidelog.wire.groups import CommitOffsets, Done, FetchOffsets, TopicPartitions

INITIAL_MS = LIMITS.initial_rebalance_delay_ms


@pytest.fixture
def group() -> ClassicGroup:
    return ClassicGroup()


def limits(**changes: int) -> GroupLimits:
    return dataclasses.replace(LIMITS, **changes)


def commit(joined: JoinedGroup, member_id: str | None = None, generation: int | None = None) -> CommitOffsets:
    return CommitOffsets(
        offsets=(),
        member_id=joined.member_id if member_id is None else member_id,
        member_epoch=joined.generation if generation is None else generation,
    )


def test_the_first_rebalance_waits_for_more_members(group: ClassicGroup) -> None:
    first = group.send(join())
    group.run(INITIAL_MS - 1)
    second = group.send(join())
    group.run(INITIAL_MS)
    assert first not in group.replies
    group.run(INITIAL_MS)
    assert {group.answer(first).generation, group.answer(second).generation} == {1}
    assert group.state == "CompletingRebalance"


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    group = ClassicGroup(limits(members_max=1_000))
    first = group.send(join())
    for _ in range(REBALANCE_MS // 1_000):
        group.run(1_000)
        group.send(join())
    assert first in group.replies


def test_without_an_initial_delay_the_first_member_joins_at_once() -> None:
    group = ClassicGroup(limits(initial_rebalance_delay_ms=0))
    assert group.call(join()).generation == 1


def test_one_member_leads_and_gets_all_members(group: ClassicGroup) -> None:
    joined = group.stable("a", "b", "c")
    leaders = [each for each in joined.values() if each.member_id == each.leader]
    assert len(leaders) == 1
    assert {m.member_id for m in leaders[0].members} == {each.member_id for each in joined.values()}
    assert all(not each.members for each in joined.values() if each is not leaders[0])


def test_a_later_rebalance_ends_as_soon_as_all_have_joined(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    b = group.send(join())
    with pytest.raises(RebalanceInProgress):
        group.call(beat(a))
    assert group.call(again(a)).generation == 2
    assert group.answer(b).generation == 2


def test_members_that_do_not_join_in_time_are_removed(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    first = group.send(again(a))
    for _ in range(REBALANCE_MS // 5_000):
        with pytest.raises(RebalanceInProgress):
            group.call(beat(b))
        assert first not in group.replies
        group.run(5_000)
    assert [m.member_id for m in group.answer(first).members] == [a.member_id]
    with pytest.raises(UnknownMember, match="join again"):
        group.call(beat(b))


def test_a_follower_that_joins_again_unchanged_gets_the_generation(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    follower, leader = (a, b) if b.leader == b.member_id else (b, a)
    assert group.call(again(follower)) == follower
    group.send(again(leader))
    assert group.state == "PreparingRebalance"


def test_a_changed_subscription_starts_a_rebalance(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    follower = a if b.leader == b.member_id else b
    group.send(again(follower, topics=("web", "clicks")))
    assert group.state == "PreparingRebalance"


def test_a_join_that_is_repeated_before_the_sync_gets_the_same_answer(group: ClassicGroup) -> None:
    ticket = group.send(join())
    group.run(INITIAL_MS)
    joined = group.answer(ticket)
    assert group.call(again(joined)) == joined


def test_a_second_join_of_a_waiting_member_replaces_the_first(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    first = group.send(again(a))
    second = group.send(again(a))
    with pytest.raises(RebalanceInProgress, match="replaced"):
        group.answer(first)
    group.send(again(b))
    assert group.answer(second).generation == 2


def test_the_protocol_with_the_most_votes_among_those_of_all_is_chosen(group: ClassicGroup) -> None:
    offers = (("sticky", "range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range", "sticky"))
    tickets = [group.send(join(protocols=protocols)) for protocols in offers]
    assert {joined.protocol for joined in group.answers(tickets)} == {"roundrobin"}


def test_a_member_without_a_common_protocol_is_refused(group: ClassicGroup) -> None:
    group.stable("a")
    for wrong in (
        join(protocols=("custom",)),
        join(protocol_type="connect"),
        join(protocols=()),
        join(protocol_type=""),
    ):
        with pytest.raises(WrongGroupKind):
            group.call(wrong)
    assert group.state == "Stable"


def test_the_only_member_may_replace_its_protocols(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    assert group.call(again(a, protocols=("custom",))).protocol == "custom"


@pytest.mark.parametrize(
    "session_timeout_ms", [0, LIMITS.session_timeout_ms_min - 1, LIMITS.session_timeout_ms_max + 1]
)
def test_a_session_timeout_outside_its_bounds_is_refused(group: ClassicGroup, session_timeout_ms: int) -> None:
    with pytest.raises(Invalid, match="session_timeout_ms must be between"):
        group.call(join(session_timeout_ms=session_timeout_ms))


def test_the_subscription_of_a_member_is_bounded(group: ClassicGroup) -> None:
    with pytest.raises(TooLarge):
        group.call(join(metadata=bytes(MEMBER_BYTES_MAX)))


def test_a_full_group_refuses_new_members_and_keeps_the_others(group: ClassicGroup) -> None:
    joined = group.stable(*"abcde")
    with pytest.raises(GroupFull, match=r"group\.max\.size"):
        group.call(join())
    assert all(group.call(beat(each)) == Done() for each in joined.values())


def test_an_unknown_member_has_to_join_anew(group: ClassicGroup) -> None:
    group.stable("a")
    with pytest.raises(UnknownMember):
        group.call(join("nobody"))


def test_a_first_join_is_answered_with_the_member_id_to_join_with(group: ClassicGroup) -> None:
    member_id = required_id(group)
    assert len(group.members) == 1
    ticket = group.send(join(member_id))
    group.run(INITIAL_MS)
    assert group.answer(ticket).member_id == member_id


def test_a_rebalance_waits_for_members_that_were_given_an_id(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    member_id = required_id(group)
    first = group.send(again(a))
    assert first not in group.replies
    group.send(join(member_id))
    assert len(group.answer(first).members) == 2


def test_a_member_id_that_nobody_joins_with_is_forgotten(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    member_id = required_id(group)
    first = group.send(again(a))
    group.run(SESSION_MS)
    assert len(group.answer(first).members) == 1
    with pytest.raises(UnknownMember):
        group.call(join(member_id))


def test_a_member_that_was_given_an_id_may_leave(group: ClassicGroup) -> None:
    member_id = required_id(group)
    assert group.call(LeaveGroup(members=(LeavingMember(member_id),))) == Done()
    assert len(group.members) == 0


def required_id(group: ClassicGroup) -> str:
    with pytest.raises(MemberIdRequired) as refused:
        group.call(join(known_member_required=True))
    return refused.value.member_id


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


def test_a_first_join_whose_client_is_gone_leaves_nobody_behind(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    gone = group.send(join())
    group.withdraw(gone)
    assert [m.member_id for m in group.call(again(a)).members] == [a.member_id]
    assert gone not in group.replies


def test_a_known_member_whose_client_gave_up_stays_until_its_session_ends(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    group.withdraw(group.send(again(a)))
    second = group.call(again(b))
    leader = second.leader
    assert leader in (a.member_id, b.member_id)
    assert group.call(again(a)).generation == 2


def test_a_new_coordinator_continues_in_stable_without_a_rebalance(group: ClassicGroup) -> None:
    joined = group.stable("a", "b", "c")
    before = group.members.describe()
    group.crash()
    assert group.members.describe() == before
    for each in joined.values():
        assert group.call(beat(each)) == Done()
        assert group.call(replace(sync(each), assignments=())).assignment == f"1/{each.member_id}".encode()
    group.members.check_commit(commit(joined["a"]))


def test_a_generation_without_an_assignment_is_never_used_again(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    second = group.call(again(a, topics=("clicks",)))
    assert second.generation == 2
    group.crash()
    with pytest.raises(MemberFenced):
        group.call(sync(second))
    assert group.call(beat(a)) == Done()
    assert group.call(again(a, topics=("clicks",))).generation == 3


def test_after_a_crash_between_the_writes_of_a_generation_all_members_join_again(group: ClassicGroup) -> None:
    """A store may need several steps for a large group."""
    first = group.stable("a", "b", "c")
    before = dict(group.stored)
    waiting = [group.send(again(each, topics=("clicks",))) for each in first.values()]
    second = group.answers(waiting)
    group.sync(second)
    after = dict(group.stored)
    for count in range(1, 4):
        changed = [key for key in after if "/members/" in key and after[key] != before[key]]
        group.stored = before | {key: after[key] for key in changed[:count]}
        group.crash()
        assert group.state == "PreparingRebalance"
        for each in first.values():
            with pytest.raises(RebalanceInProgress):
                group.call(beat(each))
        with pytest.raises(MemberFenced):
            group.call(sync(second[0]))
        joined = group.answers(group.send(again(each)) for each in first.values())
        assert len(group.sync(joined)) == 3
        group.crash()
        assert group.state == "Stable"


def test_a_static_member_that_came_back_in_a_rebalance_is_known_after_a_crash(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b", instance=True).values()
    waiting = group.send(join(instance_id="a", topics=("clicks",)))
    group.send(again(b, instance_id="b"))
    back = group.answer(waiting)
    group.crash()
    assert group.call(beat(back, generation=a.generation, instance_id="a")) == Done()
    assert group.call(replace(sync(back), generation=1, assignments=())).assignment == f"1/{a.member_id}".encode()


def test_after_a_crash_each_member_has_a_whole_session(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    group.run(SESSION_MS - 1)
    group.crash()
    group.run(SESSION_MS - 1)
    assert group.call(beat(a)) == Done()


def test_sessions_and_barriers_begin_anew_after_a_pause(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    first = group.send(again(a))
    group.now_ms += REBALANCE_MS
    group.context.begin(group._moment(), {})
    group.members.extend_sessions()
    group.run(SESSION_MS - 1)
    assert first not in group.replies
    assert group.call(again(b)).generation == 2


def test_nothing_of_a_removed_member_stays_in_the_store(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    group.call(leave(a))
    group.sync([group.call(again(b))])
    assert len([key for key in group.stored if "/members/" in key]) == 1


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
