"""Committed offsets of a group: topics that come and go, retention, deletion."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.stepped_group import SteppedGroup

from tidelog.coordinator.groups.committed_offsets import FOREIGN_GRACE_MS
from tidelog.coordinator.groups.group import LINGER_MS
from tidelog.coordinator.groups.group_step import GroupLimits, TopicInfo
from tidelog.storage.errors import GroupNotEmpty, NotFound, TooLarge
from tidelog.wire.groups import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    PartitionOffset,
    TopicPartitions,
)

RETENTION_MS = 3_600_000
LIMITS = GroupLimits(offsets_retention_ms=RETENTION_MS, session_timeout_ms=10_000)


def test_an_offset_keeps_its_metadata_leader_epoch_and_time() -> None:
    group = SteppedGroup()
    offset = PartitionOffset(topic="web", partition=1, offset=5, leader_epoch=3, metadata="note")
    group.now_ms = 7
    group.call(CommitOffsets(offsets=(offset,)))
    group.reload()
    (found,) = group.call(FetchOffsets(partitions=(TopicPartitions("web", (0, 1)),))).offsets
    assert (found.offset, found.leader_epoch, found.metadata) == (5, 3, "note")
    assert found.committed_at_ms == group.moment.now_ms


def test_long_metadata_is_refused() -> None:
    group = SteppedGroup(GroupLimits(metadata_bytes_max=4))
    with pytest.raises(TooLarge) as refused:
        group.call(CommitOffsets(offsets=(PartitionOffset(topic="web", partition=0, offset=1, metadata="ééé"),)))
    assert refused.value.limit_name == "offset.metadata.max.bytes"
    assert group.stored == {}


def test_a_member_that_commits_the_same_offset_again_writes_nothing() -> None:
    group = SteppedGroup()
    member = group.member("a")
    member.beat()
    member.commit(5, 0)
    assert len(group.changes) == 1
    group.wait(1)
    member.commit(5, 0)
    assert group.changes == []


def test_offsets_of_a_deleted_or_new_topic_of_the_name_are_not_returned_and_later_forgotten() -> None:
    group = SteppedGroup(web=1, app=1)
    group.commit(5)
    group.commit(6, topic="app")
    group.set_topic("web", TopicInfo("web#2", 1))
    assert group.committed() == {("app", 0): 6}
    group.wait(FOREIGN_GRACE_MS)
    assert [key for key in group.stored if "web" in key] == []
    assert [key for key in group.stored if "app" in key] != []


def test_offsets_of_a_topic_that_this_broker_learns_of_late_are_kept() -> None:
    group = SteppedGroup(web=1)
    group.commit(5)
    known = group.topics
    group.topics = {}
    group.wait(1)
    group.wait(FOREIGN_GRACE_MS - 2)
    group.topics = known
    group.wait(1)
    group.wait(FOREIGN_GRACE_MS)
    assert group.committed() == {("web", 0): 5}


def test_offsets_expire_only_while_the_group_is_empty() -> None:
    group = SteppedGroup(LIMITS)
    group.commit(5)
    member = group.member("a")
    for _ in range(RETENTION_MS // 5_000 + 1):
        group.wait(5_000)
        member.beat()
    assert group.committed() == {("web", 0): 5}
    member.leave()
    group.wait(RETENTION_MS - 1)
    assert group.committed() == {("web", 0): 5}
    assert group.machine.due_ms == group.now_ms + 1
    group.wait(1)
    assert group.committed() == {}


def test_each_offset_without_members_expires_after_its_own_commit() -> None:
    group = SteppedGroup(LIMITS)
    group.commit(5)
    group.wait(RETENTION_MS // 2)
    group.commit(6, partition=1)
    group.wait(RETENTION_MS // 2)
    assert group.committed() == {("web", 1): 6}
    group.wait(RETENTION_MS // 2)
    assert group.committed() == {}


def test_an_unused_group_is_deleted_after_a_while() -> None:
    group = SteppedGroup()
    group.member("a").leave()
    assert group.machine.idle
    group.wait(LINGER_MS - 1)
    assert group.stored
    group.wait(1)
    assert group.stored == {}
    assert group.machine.due_ms is None


def test_offsets_are_deleted_unless_a_member_subscribes_to_the_topic() -> None:
    group = SteppedGroup(web=1, app=1)
    group.commit(5)
    group.commit(6, topic="app")
    group.member("a", topics=("web",))
    with pytest.raises(GroupNotEmpty):
        group.call(DeleteOffsets(partitions=(TopicPartitions("app", (0,)), TopicPartitions("web", (0,)))))
    assert len(group.committed()) == 2
    group.call(DeleteOffsets(partitions=(TopicPartitions("app", (0, 7)),)))
    assert group.committed() == {("web", 0): 5}


def test_a_group_is_deleted_with_its_offsets_unless_it_has_members() -> None:
    group = SteppedGroup()
    group.commit(5)
    member = group.member("a")
    with pytest.raises(GroupNotEmpty):
        group.call(DeleteGroup())
    member.leave()
    group.call(DeleteGroup())
    assert group.stored == {}
    for request in (DescribeGroup(), DeleteGroup(), DeleteOffsets(partitions=())):
        with pytest.raises(NotFound):
            group.call(request)
