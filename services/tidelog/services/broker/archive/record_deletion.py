"""delete-records at the leader: sets the log start of a partition.

Only the shard's manifest can store the log start, so the records below it must be cold. If records beyond the cold end
are to be deleted, the shard is archived first. Their WAL entries are deleted after the grace, like all others (inv. 6).
If damage prevents archiving, the answer is `Corrupt`.

In a cluster the answer comes when no broker can give out the deleted records any more (`leadership_proof`).
"""

from __future__ import annotations

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.archive.archive_loop import ArchiveLoop
from tidelog.services.broker.shard.leadership_proof import DELETION_WAIT_S
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.errors import Conflict, Corrupt, Invalid, NewerFormat, RecordsLost, Unavailable
from tidelog.storage.layout import WAL_PREFIX
from tidelog.storage.runtime import Clock

HIGH_WATERMARK = -1
"""As an offset: everything that is committed now, as in Kafka."""


class RecordDeletion:
    """For the partitions that are led here."""

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
                raise fault if isinstance(fault, NewerFormat) else _blocked(leader, state, fault)
        if offset > state.log_start_offset:
            await self._delete(topic, leader, state, offset)
        if not self._shards.alone:  # also if nothing was deleted now: an earlier call may have done it a moment ago
            await self._clock.sleep(DELETION_WAIT_S)
            await self._shards.prove_leading(leader)
        return state.log_start_offset

    async def _delete(self, topic: Topic, leader: ShardLeader, state: PartitionState, offset: int) -> None:
        try:
            led = self._shards.led_shard(leader.shard)
            await led.while_it_lasts(led.upkeep.delete_records(topic, state.topic_partition.partition, offset))
        except Conflict as error:
            raise Unavailable(f"other workers changed the manifest at the same time. Retry: {error}") from error
        self._shards.check_leading(leader)
        if state.log_start_offset < offset:
            raise Unavailable(f"not all records below offset {offset} were deleted. Retry")


def _blocked(leader: ShardLeader, state: PartitionState, fault: Corrupt) -> Corrupt:
    """`fault` as the reason why records beyond the cold end cannot be deleted, with the lost offsets if known."""
    span = next(state.spans_from(state.cold_end), None)
    reason = f"{fault.reason}; records from {state.cold_end} on cannot be deleted before `tidelog bucket repair`"
    if span is None or not fault.name.startswith(WAL_PREFIX):
        return Corrupt(fault.name, reason)
    key = leader.partitions.wal.key(span.entry.seq)
    return RecordsLost(key, reason, first_offset=span.base_offset, next_offset=span.next_offset)


def checked_offset(before_offset: int) -> int:
    """`before_offset` itself. Raises `Invalid` if it is negative."""
    if before_offset < 0:
        raise Invalid(
            f"before_offset must be an offset, or {HIGH_WATERMARK} for all committed records, not {before_offset}",
            field="before_offset",
        )
    return before_offset
