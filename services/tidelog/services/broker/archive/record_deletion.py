"""delete-records at the leader: the log of a partition begins at an offset from now on.

What the offset cuts off has to be cold, since only a manifest can say where a log begins. So if records beyond the cold
end are to go, the shard is archived first; their WAL entries are then deleted as all are, after the grace (inv. 6).
Damage that keeps the partition from being archived is answered as `Corrupt`.

In a cluster the answer comes once no reader of any broker gets the deleted records any more (`log_start_trust`).
"""

from __future__ import annotations

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.archive.archive_loop import ArchiveLoop
from tidelog.services.broker.read.log_start_trust import DELETION_WAIT_S
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.errors import Conflict, Corrupt, Invalid, RecordsLost, Unavailable
from tidelog.storage.runtime import Clock

HIGH_WATERMARK = -1
"""As an offset: all that is committed now. Kafka's word for it."""


class RecordDeletion:
    """Of the partitions that are led here."""

    def __init__(self, shards: ShardSet, archive_loop: ArchiveLoop, clock: Clock) -> None:
        self._shards = shards
        self._archive_loop = archive_loop
        self._clock = clock

    async def delete(self, topic: Topic, leader: ShardLeader, state: PartitionState, before_offset: int) -> int:
        """See `api.Broker.delete_records`."""
        await self._shards.prove_leading(leader)
        offset = state.high_watermark if before_offset == HIGH_WATERMARK else checked_offset(before_offset)
        state.check_readable(max(offset, state.log_start_offset))
        if offset > state.cold_end:
            fault = await self._archive_loop.archive_partition(leader.shard, state.topic_partition)
            if fault and offset > state.cold_end:
                raise _blocked(leader, state, fault)
        if offset > state.log_start_offset:
            await self._delete(topic, leader, state, offset)
        await self._until_all_readers_know(leader)
        return state.log_start_offset

    async def _until_all_readers_know(self, leader: ShardLeader) -> None:
        """Also if nothing was to be deleted: a call whose answer was lost may have deleted it a moment ago."""
        if not self._shards.alone:
            await self._clock.sleep(DELETION_WAIT_S)
            await self._shards.prove_leading(leader)

    async def _delete(self, topic: Topic, leader: ShardLeader, state: PartitionState, offset: int) -> None:
        try:
            await self._shards.led_shard(leader.shard).delete_records(topic, state.topic_partition.partition, offset)
        except Conflict as error:
            raise Unavailable(
                f"other workers are busy with the partition's manifest, send it again: {error}"
            ) from error
        self._shards.check_leading(leader)
        if state.log_start_offset < offset:
            raise Unavailable(f"records below {offset} are not all deleted: send it again")


def _blocked(leader: ShardLeader, state: PartitionState, fault: Corrupt) -> Corrupt:
    """Why records beyond the cold end cannot be deleted: `fault`, with the offsets that are lost if they are known."""
    span = next(state.spans_from(state.cold_end), None)
    reason = f"{fault.reason}; records from {state.cold_end} on cannot be deleted before `tidelog bucket repair`"
    if span is None or fault.name.startswith("topics/"):
        return Corrupt(fault.name, reason)
    key = leader.partitions.wal.key(span.entry.seq)
    return RecordsLost(key, reason, first_offset=span.base_offset, next_offset=span.next_offset)


def checked_offset(before_offset: int) -> int:
    """`before_offset` itself. Raises `Invalid` for one that no log has."""
    if before_offset < 0:
        raise Invalid(
            f"before_offset is an offset, or {HIGH_WATERMARK} for all that is committed, not {before_offset}",
            field="before_offset",
        )
    return before_offset
