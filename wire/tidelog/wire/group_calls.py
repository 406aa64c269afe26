"""All requests to the coordinator of a group, and the answer of each: for calls between brokers."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from tidelog.wire.classic_groups import ClassicHeartbeat, JoinedGroup, JoinGroup, LeaveGroup, SyncedGroup, SyncGroup
from tidelog.wire.groups import (
    CommitOffsets,
    DeleteGroup,
    DeleteInstance,
    DeleteOffsets,
    DescribeGroup,
    Done,
    FetchOffsets,
    GroupDescription,
    GroupRequest,
    Heartbeat,
    HeartbeatAnswer,
    InstanceState,
    OffsetsAnswer,
    ReadInstance,
    WriteInstance,
)

A = TypeVar("A")

AnyGroupRequest: TypeAlias = (
    Heartbeat
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DescribeGroup
    | DeleteGroup
    | JoinGroup
    | SyncGroup
    | ClassicHeartbeat
    | LeaveGroup
    | ReadInstance
    | WriteInstance
    | DeleteInstance
)

_ANSWERS: dict[type[GroupRequest[Any]], type[Any]] = {
    Heartbeat: HeartbeatAnswer,
    FetchOffsets: OffsetsAnswer,
    DescribeGroup: GroupDescription,
    JoinGroup: JoinedGroup,
    SyncGroup: SyncedGroup,
    ReadInstance: InstanceState,
    WriteInstance: InstanceState,
}


def waits(request: GroupRequest[Any]) -> bool:
    """Whether `request` may wait for other members of its group."""
    return isinstance(request, JoinGroup | SyncGroup)


def answer_type(request: GroupRequest[A]) -> type[A]:
    """The class of the answer to `request`."""
    return _ANSWERS.get(type(request), Done)
