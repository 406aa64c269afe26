"""Consumer groups: joining, and how partitions move."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.stepped_group import SteppedGroup, settle, web

from tidelog.coordinator.groups.group_step import GroupLimits
from tidelog.coordinator.groups.target_assignment import AT_ONCE_MAX
from tidelog.storage.errors import (
    GroupFull,
    Invalid,
    MemberFenced,
    NotFound,
    StaleMemberEpoch,
    UnknownGroup,
    UnknownMember,
)
from tidelog.wire.groups import LEAVE_EPOCH, DescribeGroup, Heartbeat

LARGE = AT_ONCE_MAX + 1
"""So many partitions are assigned by a task."""


@pytest.mark.parametrize("partitions", [4, AT_ONCE_MAX])
def test_the_first_member_gets_all_partitions_by_its_join(partitions: int) -> None:
    group = SteppedGroup(web=partitions)
    member = group.member("a")
    assert (member.epoch > 0, member.numbers, group.task) == (True, list(range(partitions)), None)
    assert member.answer.heartbeat_interval_ms == GroupLimits().heartbeat_interval_ms
    assert member.beat().member_epoch == member.epoch, "there is nothing more to learn"


def test_the_first_member_of_a_large_group_gets_its_partitions_at_its_second_heartbeat() -> None:
    member = SteppedGroup(web=LARGE).member("a")
    assert (member.epoch > 0, member.numbers) == (True, [])
    assert member.answer.heartbeat_interval_ms == 200  # it waits for partitions
    member.beat()
    assert member.numbers == list(range(LARGE))
    assert member.answer.heartbeat_interval_ms == GroupLimits().heartbeat_interval_ms


def test_a_heartbeat_to_a_group_that_does_not_exist_says_so() -> None:
    group = SteppedGroup()
    for epoch in (3, LEAVE_EPOCH):
        with pytest.raises(UnknownGroup):
            group.call(Heartbeat(member_id="a", member_epoch=epoch))
    group.member("a")
    with pytest.raises(UnknownMember) as refusal:
        group.call(Heartbeat(member_id="b", member_epoch=3))
    assert not isinstance(refusal.value, UnknownGroup)
    with pytest.raises(Invalid):
        group.call(Heartbeat(member_id="a", member_epoch=-5))


def test_the_coordinator_makes_an_id_for_a_member_without_one() -> None:
    answer = SteppedGroup().call(Heartbeat(topics=("web",)))
    assert len(answer.member_id) == 32


def test_a_join_whose_answer_was_lost_is_repeated() -> None:
    group = SteppedGroup()
    member = group.member("a")
    first = member.epoch
    assert member.join().member_epoch == first
    assert len(group.call(DescribeGroup()).members) == 1


def test_a_member_that_begins_anew_keeps_its_partitions_and_fences_its_former_process() -> None:
    group = SteppedGroup()
    member = group.member("a")
    former = member.beat()
    member.join()
    assert member.numbers == [0, 1, 2, 3]
    with pytest.raises(MemberFenced):
        member.beat(member_epoch=former.member_epoch)


def test_a_full_group_refuses_a_member() -> None:
    group = SteppedGroup(GroupLimits(members_max=1))
    group.member("a")
    with pytest.raises(GroupFull):
        group.member("b")


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("topics", Heartbeat()),
        ("topics", Heartbeat(topics=("",))),
        ("topics", Heartbeat(topics=tuple(map(str, range(10_001))))),
        ("topic_pattern", Heartbeat(topic_pattern="(a")),
        ("topic_pattern", Heartbeat(topic_pattern="a" * 1_001)),
        ("assignor", Heartbeat(topics=("web",), assignor="best")),
        ("owned", Heartbeat(topics=("web",), owned=web(0))),
        ("session_timeout_ms", Heartbeat(topics=("web",), session_timeout_ms=1)),
        ("session_timeout_ms", Heartbeat(topics=("web",), session_timeout_ms=10**9)),
        ("rebalance_timeout_ms", Heartbeat(topics=("web",), rebalance_timeout_ms=0)),
        ("member_id", Heartbeat(topics=("web",), member_id="m" * 256)),
        ("instance_id", Heartbeat(topics=("web",), instance_id="")),
    ],
)
def test_a_wrong_request_is_refused_and_changes_nothing(field: str, request_: Heartbeat) -> None:
    group = SteppedGroup()
    with pytest.raises(Invalid) as refused:
        group.call(request_)
    assert refused.value.field == field
    assert group.stored == {}


def test_a_partition_goes_to_another_member_only_after_its_owner_has_confirmed() -> None:
    group = SteppedGroup()
    a = group.member("a")
    a.beat()
    b = group.member("b")
    before = a.answer
    assert a.beat().assignment == web(0, 1)
    assert b.beat().assignment == ()
    a.beat(owned=before.assignment)  # it still reads 2 and 3
    assert b.beat().assignment == ()
    a.beat()
    assert b.beat().assignment == web(2, 3)
    assert b.epoch > a.epoch > before.member_epoch


def test_a_request_of_the_epoch_before_confirms_nothing() -> None:
    group = SteppedGroup()
    a = group.member("a")
    a.beat()
    b = group.member("b")
    before = a.answer
    a.beat()  # told to give up 2 and 3; suppose that the answer is lost
    repeated = a.beat(member_epoch=before.member_epoch, owned=())
    assert repeated.assignment == web(0, 1)
    assert b.beat().assignment == ()


def test_a_member_whose_partitions_stay_keeps_its_epoch() -> None:
    group = SteppedGroup(web=2)
    a, b = group.member("a"), group.member("b")
    settle(a, b)
    epochs = a.epoch, b.epoch
    c = group.member("c")  # more members than partitions
    settle(a, b, c)
    assert (a.epoch, b.epoch, c.numbers) == (*epochs, [])


def test_a_heartbeat_that_changes_nothing_waits_for_the_members_own_key_only() -> None:
    group = SteppedGroup()
    member = group.member("a")
    settle(member)
    reply = group.reply(Heartbeat(member_id="a", member_epoch=member.epoch, owned=member.answer.assignment))
    assert reply.rests_on == {"parts/g/members/a"}
    assert group.changes == []


def test_a_member_that_changes_its_epoch_waits_for_everything() -> None:
    group = SteppedGroup(web=LARGE)
    member = group.member("a")
    assert group.reply(Heartbeat(member_id="a", member_epoch=member.epoch)).rests_on is None


def test_a_join_writes_only_the_keys_that_change() -> None:
    group = SteppedGroup(web=8)
    members = [group.member(name) for name in "abcd"]
    settle(*members)
    group.member("e")
    written = {change.key.rpartition("/")[2] for change in group.changes}
    assert "e" in written
    assert len(written - {"g"}) == 2  # the new member, and the one that gives a partition up


def test_a_member_that_yields_loses_its_partitions_at_once() -> None:
    group = SteppedGroup()
    a = group.member("a", yields=True)
    settle(a)
    former = a.epoch
    b = group.member("b")
    assert b.beat().assignment == web(2, 3)
    with pytest.raises(StaleMemberEpoch):
        a.commit(5, 0)
    assert a.beat(member_epoch=former).assignment == web(0, 1)


def test_a_late_join_fences_a_member_that_yields_and_has_not_learned_of_its_loss() -> None:
    group = SteppedGroup()
    a = group.member("a", yields=True)
    settle(a)
    b = group.member("b")
    b.beat()
    group.call(Heartbeat(member_id="a", topics=("web",), yields=True))  # a repetition of its join, held up by a broker
    b.leave()
    with pytest.raises(MemberFenced):  # otherwise it would read 2 and 3 on from its old positions
        a.beat()


def test_a_member_that_does_not_confirm_is_fenced_after_its_rebalance_timeout() -> None:
    group = SteppedGroup()
    a = group.member("a", rebalance_timeout_ms=10_000, session_timeout_ms=20_000)
    held = a.beat().assignment
    b = group.member("b", session_timeout_ms=20_000)
    a.beat()
    for _ in range(2):
        group.wait(5_000)
        b.beat()
    with pytest.raises(UnknownMember):
        a.beat(owned=held)
    settle(b)
    assert b.numbers == [0, 1, 2, 3]


def test_an_unknown_epoch_is_fenced() -> None:
    member = SteppedGroup().member("a")
    with pytest.raises(MemberFenced):
        member.beat(member_epoch=member.epoch + 1)
    with pytest.raises(UnknownMember):
        member.group.call(Heartbeat(member_id="nobody", member_epoch=1))


def test_an_assignment_is_used_although_the_group_has_changed_meanwhile() -> None:
    group = SteppedGroup(web=LARGE)
    group.computes = False
    a = group.member("a")
    task = group.task
    group.member("b")
    assert group.task is task  # one at a time
    group.compute()
    assert a.beat().assignment == web(*range(LARGE))
    assert group.task is not None  # the next one, with b


def test_an_assignment_whose_result_never_comes_is_asked_for_again() -> None:
    group = SteppedGroup(web=LARGE)
    group.computes = False
    member = group.member("a")
    group.task = None
    for _ in range(60):
        group.wait(1_000)
        member.beat()
    assert group.task is not None


def test_a_group_is_described_with_its_state() -> None:
    group = SteppedGroup(web=LARGE)
    with pytest.raises(NotFound):
        group.call(DescribeGroup())
    group.computes = False
    member = group.member("a", client_id="app", client_host="10.0.0.1", rack="r")
    assert group.call(DescribeGroup()).state == "Assigning"
    group.compute()
    assert group.call(DescribeGroup()).state == "Reconciling"
    settle(member)
    told = group.call(DescribeGroup())
    assert (told.state, told.kind, told.assignor) == ("Stable", "consumer", "uniform")
    (described,) = told.members
    assert (described.client_id, described.client_host, described.rack) == ("app", "10.0.0.1", "r")
    assert described.assignment == described.target == web(*range(LARGE))
    group.reload()
    assert group.call(DescribeGroup()).state == "Stable"
    member.leave()
    assert group.call(DescribeGroup()).state == "Empty"


@pytest.mark.parametrize("partitions", range(5, 9))
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_a_paused_member_keeps_its_partitions_if_others_need_not_have_them(partitions: int, names: str) -> None:
    group = SteppedGroup(web=partitions)
    paused, reader = map(group.member, names)
    settle(paused, reader)
    guest = group.member("guest")
    for member in (guest, reader, guest, reader):
        member.beat()  # the paused member sends no heartbeat: it still reads its partitions
    guest.leave()
    settle(reader)
    assert sorted([*paused.numbers, *reader.numbers]) == list(range(partitions))


def test_a_partition_that_no_member_reads_goes_to_one_that_waits() -> None:
    group = SteppedGroup(web=5)
    members = [group.member(name) for name in ("leaves", "paused")]
    settle(*members)
    leaves, paused = sorted(members, key=lambda member: len(member.numbers))
    assert len(paused.numbers) == 3
    waits = group.member("waits")
    waits.beat()
    leaves.leave()
    settle(waits)
    assert sorted([*paused.numbers, *waits.numbers]) == [0, 1, 2, 3, 4]
