"""Classic groups: JoinGroup and its barrier."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.classic_group import (
    INITIAL_MS,
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicGroup,
    again,
    beat,
    join,
    limits,
    noted,
)

from tidelog.coordinator.groups.classic_members import MEMBER_BYTES_MAX
from tidelog.storage.errors import (
    GroupFull,
    Invalid,
    MemberIdRequired,
    RebalanceInProgress,
    TooLarge,
    UnknownMember,
    WrongGroupKind,
)
from tidelog.wire.classic_groups import LeaveGroup, LeavingMember
from tidelog.wire.groups import Done


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
    assert noted(group, "session_ended") == [
        f"member {b.member_id} (client b) did not join in time: its partitions go to others"
    ]


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
