"""The `Groups` seam: everything that a front door can ask of consumer groups.

A group is coordinated by the broker that leads shard ``hash(group) mod shards``. Any broker takes any call and forwards
it there. Requests and answers are those of `tidelog.wire.groups`.

Errors: `UnknownMember`, `MemberFenced` (join again), `StaleMemberEpoch` (send a heartbeat first), `InstanceInUse`,
`GroupFull`, `GroupNotEmpty`, `WrongGroupKind`, `RebalanceInProgress`, `MemberIdRequired`, `NotFound`, `Invalid`;
`Overloaded`, `NotLeader`, `LeaderUnknown` (not applied); `Unavailable` (the outcome is unknown: all requests may be
repeated).
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from tidelog.services.broker.api.cluster import Route
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.wire.groups import GroupPage, GroupRequest

A = TypeVar("A")


class Groups(Protocol):
    """The consumer groups of the cluster. Every call may run at the same time as every other."""

    async def call(self, context: RequestContext, /, group: str, request: GroupRequest[A]) -> A:
        """Let the coordinator of `group` carry out `request`. The answer is sent once the state in it is stored."""
        ...

    async def groups(self, context: RequestContext, /, *, after: str = "", limit: int = 1_000) -> GroupPage:
        """Groups by name, after `after`. Raises `Unavailable`."""
        ...

    def coordinator(self, context: RequestContext, /, group: str) -> Route:
        """Where `group` is coordinated now."""
        ...
