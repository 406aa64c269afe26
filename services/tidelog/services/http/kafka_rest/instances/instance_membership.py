"""A consumer instance as a member of its group: heartbeats, commits, and where to begin.

The member `yields`: the coordinator revokes partitions without waiting for its confirmation, because each read sends a
heartbeat after its fetch, and answers only records of partitions that are still assigned to the member (inv. 8).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import Anchor, Position
from tidelog.services.consuming.assigned_partitions import Place, grouped
from tidelog.services.consuming.partition_ends import look_up
from tidelog.services.http.kafka_rest.instances.instance_state import (
    begun,
    caught_up,
    committed,
    expelled,
    heard,
    to_commit,
)
from tidelog.services.http.kafka_rest.instances.kept_instance import KeptInstance
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.storage.errors import (
    GroupNotEmpty,
    MemberFenced,
    StaleMemberEpoch,
    TidelogError,
    UnknownMember,
)
from tidelog.storage.runtime import Clock
from tidelog.wire.groups import JOIN_EPOCH, LEAVE_EPOCH, CommitOffsets, FetchOffsets, Heartbeat, PartitionOffset

NEVER_MS = 3_600_000


@dataclass(frozen=True)
class Heard:
    """The instance after a heartbeat. The next one is due after `interval_ms`."""

    kept: KeptInstance
    interval_ms: int


class Membership:
    """`session_ms`: a member that reads nothing for so long loses its partitions."""

    def __init__(self, broker: Broker, session_ms: int, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._session_ms = session_ms

    async def heartbeat(self, kept: KeptInstance) -> Heard:
        """Join the group or stay in it. A member that the group has dropped joins anew."""
        if not kept.state.subscribed:
            return Heard(kept, NEVER_MS)
        try:
            return await self._heartbeat(kept)
        except (UnknownMember, MemberFenced):
            return await self._heartbeat(replace(kept, state=expelled(kept.state)))

    async def leave(self, kept: KeptInstance) -> None:
        """Leave the group; nothing happens if the member is in it no more."""
        if kept.state.member_epoch == JOIN_EPOCH:
            return
        request = Heartbeat(member_id=kept.state.member_id, member_epoch=LEAVE_EPOCH)
        with contextlib.suppress(UnknownMember, MemberFenced):
            await self._broker.groups.call(kept.context, kept.group, request)

    async def with_positions(self, kept: KeptInstance) -> KeptInstance:
        """The instance with a position for each of its partitions: the committed offset, or else by
        `auto.offset.reset`. Raises `RestError` if that is ``none`` and nothing is committed."""
        state = kept.state
        unknown = [one for one in state.partitions if one not in state.known]
        if not unknown:
            return kept
        offsets = await self._committed(kept, unknown)
        missing = [one for one in unknown if one not in offsets]
        offsets.update(await self.first_offsets(kept, missing))
        return replace(kept, state=begun(state, offsets))

    async def commit(self, kept: KeptInstance, offsets: Sequence[PartitionOffset]) -> KeptInstance:
        """Commit `offsets`. If the assignment has changed, a heartbeat returns the new one, and the commit is tried
        once more. Raises `RestError` (40903) if the instance may not commit them."""
        try:
            try:
                await self._commit(kept, offsets)
            except StaleMemberEpoch:
                kept = (await self.heartbeat(kept)).kept
                await self._commit(kept, offsets)
        except (StaleMemberEpoch, MemberFenced, UnknownMember, GroupNotEmpty) as error:
            raise RestError(Code.ILLEGAL_STATE, f"The offsets were not committed. {error}") from None
        return kept

    async def auto_commit(self, kept: KeptInstance, interval_ms: int = 0) -> KeptInstance:
        """Commit what was read, if the instance commits by itself and `interval_ms` is over since it last did. A commit
        that fails is tried again at the next read."""
        offsets, now_ms = to_commit(kept.state), self._clock.now_ms()
        due = not kept.state.committed_at_ms <= now_ms < kept.state.committed_at_ms + interval_ms
        if not (kept.state.config.auto_commit and offsets and due):
            return kept
        try:
            await self._commit(kept, offsets)
        except TidelogError:
            return kept
        state = msgspec.structs.replace(committed(kept.state, offsets), committed_at_ms=now_ms)
        return replace(kept, state=state)

    async def _heartbeat(self, kept: KeptInstance) -> Heard:
        state = kept.state
        joins = state.member_epoch == JOIN_EPOCH
        request = Heartbeat(
            member_id=state.member_id,
            member_epoch=state.member_epoch,
            topics=state.topics,
            topic_pattern=state.topic_pattern,
            session_timeout_ms=self._session_ms if joins else None,
            yields=True if joins else None,
            client_id=kept.context.client_id if joins else "",
        )
        answer = await self._broker.groups.call(kept.context, kept.group, request)
        after = replace(kept, state=heard(state, answer))
        if answer.member_epoch != state.member_epoch and after.state.positions:
            offsets = await self._committed(after, list(after.state.known))
            after = replace(after, state=caught_up(after.state, offsets))
        return Heard(after, answer.heartbeat_interval_ms)

    async def _commit(self, kept: KeptInstance, offsets: Sequence[PartitionOffset]) -> None:
        state = kept.state
        if state.member_epoch == JOIN_EPOCH:
            request = CommitOffsets(offsets=tuple(offsets))
        else:
            request = CommitOffsets(offsets=tuple(offsets), member_id=state.member_id, member_epoch=state.member_epoch)
        await self._broker.groups.call(kept.context, kept.group, request)

    async def _committed(self, kept: KeptInstance, partitions: Sequence[Place]) -> dict[Place, int]:
        answer = await self._broker.groups.call(kept.context, kept.group, FetchOffsets(partitions=grouped(partitions)))
        return {(one.topic, one.partition): one.offset for one in answer.offsets}

    async def first_offsets(self, kept: KeptInstance, partitions: Sequence[Place]) -> dict[Place, int]:
        """Where `auto.offset.reset` begins to read `partitions`. Raises `RestError` if it is ``none``."""
        reset = kept.state.config.reset
        if reset == "none" and partitions:
            topic, partition = partitions[0]
            raise RestError(
                Code.KAFKA_ERROR,
                f"Undefined offset with no reset policy for partition {topic}-{partition}: commit or seek, or set "
                "auto.offset.reset to earliest or latest",
            )
        anchor = Anchor.EARLIEST if reset == "earliest" else Anchor.LATEST
        return await resolved(self._broker, kept, {one: Position(anchor) for one in partitions})


async def resolved(broker: Broker, kept: KeptInstance, places: dict[Place, Position]) -> dict[Place, int]:
    """The offsets of `places`. A partition that does not exist is left out."""
    found = await look_up(broker, kept.context, list(places.items()), leave_out_missing=True)
    return {place: answer.part.begin for place, answer in found.items()}
