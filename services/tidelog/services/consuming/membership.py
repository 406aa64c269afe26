"""The calls on its group that a poll makes for a member.

A poll first commits, then sends one heartbeat. The heartbeat confirms the revocation of the partitions that the member
does not name any more. While the poll waits, `keep` sends further heartbeats.

Those further ones have the epoch of the client's request, which the coordinator answers as a repetition, even if the
member is in a later epoch meanwhile. So a client that never gets the answer of this poll may repeat the request at any
broker, and is not fenced. A client that joins has no epoch yet: if it gets no answer, it joins again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelog.services.broker.api.groups import Groups
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.consuming.assigned_partitions import Place, grouped, places_of
from tidelog.storage.errors import NotFound, StaleMemberEpoch, UnknownMember
from tidelog.wire.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    HeartbeatAnswer,
    PartitionOffset,
)


class Membership:
    """The member of one poll. `heartbeat` is as in `MemberPoll`."""

    def __init__(self, groups: Groups, context: RequestContext, group: str, heartbeat: Heartbeat) -> None:
        self._groups = groups
        self._context = context
        self._group = group
        self._heartbeat = heartbeat
        self._answer: HeartbeatAnswer | None = None

    @property
    def joins(self) -> bool:
        return self._heartbeat.member_epoch == JOIN_EPOCH

    @property
    def answer(self) -> HeartbeatAnswer:
        """The last answer of the coordinator."""
        assert self._answer is not None, "begin was called"
        return self._answer

    @property
    def assigned(self) -> list[Place]:
        return places_of(self.answer.assignment)

    async def begin(self, positions: Sequence[PartitionOffset], *, commit: bool) -> None:
        """Commit `positions`, and send the poll's heartbeat. Positions that are not the member's any more are left out,
        because their partition has another owner or its topic is gone. Raises like `Groups.call`."""
        committed = not (commit and positions) or await self._commit(positions, self._heartbeat.member_epoch)
        owned = None if self.joins else grouped((each.topic, each.partition) for each in positions)
        heartbeat = msgspec.structs.replace(self._heartbeat, owned=None if owned is None else tuple(owned))
        self._answer = await self._groups.call(self._context, self._group, heartbeat)
        if not committed:
            assigned = set(self.assigned)
            left = [each for each in positions if (each.topic, each.partition) in assigned]
            if left and not await self._commit(left, self.answer.member_epoch):
                raise StaleMemberEpoch(
                    f"the assignment of the member {self.answer.member_id} changed during its commit: poll again"
                )

    async def leave(self, positions: Sequence[PartitionOffset], *, commit: bool) -> None:
        """Commit `positions`, and leave the group. Raises `StaleMemberEpoch` if some of them are not the member's."""
        if commit and positions and not await self._commit(positions, self._heartbeat.member_epoch):
            raise StaleMemberEpoch(
                "the member's assignment has changed: poll once more, or leave with commit set to false"
            )
        leaving = Heartbeat(
            member_id=self._heartbeat.member_id,
            member_epoch=LEAVE_EPOCH,
            instance_id=self._heartbeat.instance_id,
        )
        self._answer = await self._groups.call(self._context, self._group, leaving)

    async def keep(self) -> bool:
        """Send a heartbeat on the member's behalf; return whether its assignment has changed."""
        before = self.answer
        epoch = before.member_epoch if self.joins else self._heartbeat.member_epoch
        heartbeat = Heartbeat(
            member_id=before.member_id,
            member_epoch=epoch,
            instance_id=self._heartbeat.instance_id,
            owned=before.assignment if self.joins else None,
        )
        self._answer = await self._groups.call(self._context, self._group, heartbeat)
        return self.answer.member_epoch != before.member_epoch

    async def committed(self, places: Sequence[Place]) -> dict[Place, int]:
        """The committed offsets of `places` that have one. Only this member can change them."""
        found = await self._groups.call(self._context, self._group, FetchOffsets(partitions=grouped(places)))
        return {(each.topic, each.partition): each.offset for each in found.offsets}

    async def _commit(self, positions: Sequence[PartitionOffset], epoch: int) -> bool:
        """Whether the coordinator has taken all of `positions`."""
        member_id = self._heartbeat.member_id
        if self.joins or not member_id:
            raise UnknownMember("positions are committed by a member: join with a poll without offsets first")
        request = CommitOffsets(
            offsets=tuple(positions),
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._heartbeat.instance_id,
        )
        try:
            await self._groups.call(self._context, self._group, request)
        except (StaleMemberEpoch, NotFound) as error:
            if isinstance(error, UnknownMember):
                raise
            return False
        return True
