"""A group is of one kind while it has members, and may change it while it has none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.groups.classic_group import SESSION_MS, join, leave, sync

from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_step import GroupLimits, Moment, Ticket, TopicInfo
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.errors import TidelogError, WrongGroupKind
from tidelog.storage.runtime import SeededEntropy
from tidelog.wire.classic_groups import JoinedGroup
from tidelog.wire.groups import (
    LEAVE_EPOCH,
    CommitOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupRequest,
    Heartbeat,
    PartitionOffset,
)

TOPICS = {"web": TopicInfo("id-web", 4)}
LIMITS = GroupLimits(initial_rebalance_delay_ms=0)
MOMENT = Moment(1_000_000, 1_700_000_000_000)


class LoadedGroup:
    """One group and its store."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.load()

    def load(self) -> None:
        self.group = Group("orders", LIMITS, SeededEntropy(1), self.stored, MOMENT)

    def call(self, request: GroupRequest[Any]) -> Any:
        self.group.handle(MOMENT, TOPICS, Ticket(1), request)
        outcome = self.group.take()
        for change in outcome.changes:
            if isinstance(change, PutKey):
                self.stored[change.key] = change.value
            else:
                self.stored.pop(change.key, None)
        (reply,) = outcome.replies
        if isinstance(reply.error, TidelogError):
            raise reply.error
        return reply.answer


def joined(group: LoadedGroup) -> JoinedGroup:
    member: JoinedGroup = group.call(join(session_timeout_ms=SESSION_MS))
    group.call(sync(member))
    return member


def commit(member_id: str = "", epoch: int = LEAVE_EPOCH) -> CommitOffsets:
    offset = PartitionOffset(topic="web", partition=1, offset=7)
    return CommitOffsets(offsets=(offset,), member_id=member_id, member_epoch=epoch)


def test_a_member_of_the_other_kind_is_refused() -> None:
    group = LoadedGroup()
    joined(group)
    with pytest.raises(WrongGroupKind, match="classic"):
        group.call(Heartbeat(member_id="m", topics=("web",)))
    other = LoadedGroup()
    other.call(Heartbeat(member_id="m", topics=("web",)))
    with pytest.raises(WrongGroupKind, match="consumer"):
        other.call(join())


@pytest.mark.parametrize("restarted", [False, True])
def test_an_empty_group_changes_its_kind_and_keeps_its_offsets_and_epochs(restarted: bool) -> None:
    group = LoadedGroup()
    member = joined(group)
    group.call(commit(member.member_id, member.generation))
    group.call(leave(member))
    if restarted:
        group.load()
    assert group.call(DescribeGroup()).kind == "classic"
    beat = group.call(Heartbeat(member_id="m", topics=("web",)))
    assert beat.member_epoch > member.generation
    group.call(Heartbeat(member_id="m", member_epoch=LEAVE_EPOCH))
    if restarted:
        group.load()
    assert joined(group).generation > beat.member_epoch
    assert [offset.offset for offset in group.call(FetchOffsets()).offsets] == [7]
    group.load()
    assert (group.call(DescribeGroup()).kind, group.call(DescribeGroup()).state) == ("classic", "Stable")


def test_a_group_whose_first_members_join_is_described() -> None:
    group = LoadedGroup()
    group.group.handle(MOMENT, TOPICS, Ticket(1), join())
    group.group.take()
    assert group.call(DescribeGroup()).state == "CompletingRebalance"
