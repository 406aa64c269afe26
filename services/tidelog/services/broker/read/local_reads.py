"""Answers reads of the partitions whose shards are led here, linearizable by default.

An answer that says where a log ends needs a proof that this broker still leads the shard at a moment of the call
(`ShardSet.prove_leading`). Records below the end need less: they are committed whoever leads, and only may have been
deleted by a new leader (`ShardSet.prove_led_lately`). A call that is not `fresh` does without. What is promised, and
why it holds, is told in docs/adr/0017-linearizable-reads.md.
"""

from __future__ import annotations

from tidelog.services.broker.api.fetch import Anchor, Fetched, FetchLimits, PartitionLog, Position
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.read.long_poll import LongPolls
from tidelog.services.broker.read.partition_picture import partition_picture
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.topics import Topics


class LocalReads:
    """`resolve`, `fetch` and `partition_log` of `api.Broker`, of what is led here; raises `NotLeader` or
    `LeaderUnknown` for the rest."""

    def __init__(self, parts: BrokerParts, topics: Topics, polls: LongPolls) -> None:
        self._reader = parts.reader
        self._shards = parts.shards
        self._store_url = parts.store.url
        self._settings = parts.settings
        self._topics = topics
        self._polls = polls

    async def resolve(self, topic: str, partition: int, position: Position, *, fresh: bool) -> int:
        leader, state = await self.state(topic, partition)
        match position.anchor:
            case Anchor.OFFSET:
                return position.value
            case Anchor.EARLIEST:
                await self._prove_for(leader, state, state.log_start_offset, fresh=fresh)
                return state.log_start_offset
            case Anchor.LATEST | Anchor.FROM_END:
                await self._prove_for(leader, state, state.high_watermark, fresh=fresh)
                return max(state.log_start_offset, state.high_watermark - position.value)
            case Anchor.TIMESTAMP:
                with self._shards.reading(leader):
                    offset = await self._reader.first_at(leader.partitions, state, position.value)
                await self._prove_for(leader, state, offset, fresh=fresh)
                return offset

    async def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits) -> Fetched:
        leader, state = await self.state(topic, partition)
        capped = self.capped(limits)
        if offset == state.high_watermark and capped.wait_ms > 0:
            state.check_readable(offset)
            await self._polls.wait(state, capped.wait_ms / 1000)
            self._shards.check_leading(leader)
        await self._prove_for(leader, state, offset, fresh=limits.fresh)
        state.check_readable(offset)
        with self._shards.reading(leader):
            batches, next_offset = await self._reader.read(leader.partitions, state, offset, capped)
        return Fetched(batches, next_offset, state.log_start_offset, state.high_watermark)

    async def partition_log(self, topic: str, partition: int, *, fresh: bool) -> PartitionLog:
        leader, state = await self.state(topic, partition)
        if fresh:
            await self._shards.prove_leading(leader)
            with self._shards.reading(leader):
                await leader.partitions.refresh(state)
        return partition_picture(state, self._store_url)

    def capped(self, limits: FetchLimits) -> FetchLimits:
        """`limits` within those of the settings."""
        return FetchLimits(
            min(limits.max_records, self._settings.fetch_max_records),
            min(limits.max_bytes, self._settings.fetch_max_bytes),
            min(limits.wait_ms, self._settings.fetch_max_wait_ms),
            fresh=limits.fresh,
        )

    async def state(self, name: str, partition: int) -> tuple[ShardLeader, PartitionState]:
        """A partition and the leader of its shard."""
        topic = await self._topics.known(name, partition)
        leader = self._shards.leading(topic.shards[partition])
        state = leader.partitions.loaded(topic.partition(partition)) or await leader.partitions.load(topic, partition)
        return leader, state

    async def _prove_for(self, leader: ShardLeader, state: PartitionState, offset: int, *, fresh: bool) -> None:
        """Prove as much of the leadership as an answer from `offset` on needs."""
        if offset > state.high_watermark or (fresh and offset == state.high_watermark):
            await self._shards.prove_leading(leader)
        elif fresh:
            await self._shards.prove_led_lately(leader)
