"""Consumer groups: which commits of members are accepted."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.stepped_group import SteppedGroup

from tidelog.storage.errors import (
    GroupNotEmpty,
    NotFound,
    StaleMemberEpoch,
    UnknownMember,
)
from tidelog.wire.groups import CommitOffsets, FetchOffsets


def test_only_the_owner_commits_and_only_in_its_present_epoch() -> None:
    group = SteppedGroup()
    a = group.member("a")
    a.beat()
    former = a.epoch
    b = group.member("b")
    a.commit(1, 3)
    a.beat()
    a.commit(2, 3)  # told to give 3 up, not confirmed yet: the last commit
    with pytest.raises(StaleMemberEpoch):
        a.commit(9, 0, member_epoch=former)
    a.beat()
    with pytest.raises(StaleMemberEpoch):
        a.commit(9, 3)
    b.beat()
    with pytest.raises(StaleMemberEpoch):
        a.commit(9, 3)
    b.commit(3, 3)
    assert group.committed() == {("web", 3): 3}


def test_a_commit_by_nobody_needs_an_empty_group() -> None:
    group = SteppedGroup()
    group.commit(7)
    member = group.member("a")
    with pytest.raises(GroupNotEmpty):
        group.commit(8)
    member.leave()
    group.commit(9)
    with pytest.raises(UnknownMember):
        group.commit(10, member_id="a", member_epoch=1)
    assert group.committed() == {("web", 0): 9}


def test_a_member_may_commit_a_topic_to_which_nobody_subscribes() -> None:
    group = SteppedGroup(web=1, app=1)
    member = group.member("a", topics=("web",))
    group.commit(4, topic="app", member_id="a", member_epoch=member.epoch)
    assert group.committed() == {("app", 0): 4}


def test_offsets_are_fetched_by_a_member_in_its_epoch() -> None:
    group = SteppedGroup()
    member = group.member("a")
    group.call(FetchOffsets(member_id="a", member_epoch=member.epoch))
    with pytest.raises(StaleMemberEpoch):
        group.call(FetchOffsets(member_id="a", member_epoch=member.epoch + 1))
    with pytest.raises(UnknownMember):
        group.call(FetchOffsets(member_id="b", member_epoch=1))


def test_a_commit_with_one_wrong_partition_stores_nothing() -> None:
    group = SteppedGroup()
    offsets = CommitOffsets(offsets=())
    assert group.call(offsets)
    with pytest.raises(NotFound):
        group.commit(1, partition=4)
    with pytest.raises(NotFound):
        group.commit(1, topic="nothing")
    assert group.committed() == {}
