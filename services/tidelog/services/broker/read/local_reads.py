"""Answers reads of the partitions that this broker leads, linearizable by default.

- An answer that depends on the end of the log needs a proof that this broker still leads the shard at a moment of the
  call (`ShardSet.prove_leading`).
- Records below the end need less: they are committed whoever leads, and can only have been deleted by a new leader
  (`ShardSet.prove_led_lately`).
- A call that is not `fresh` needs no proof.

docs/adr/0017-linearizable-reads.md states the guarantee and why it holds.
"""

from __future__ import annotations

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.cluster import EpochEnd
from tidelog.services.broker.api.fetch import Anchor, Fetched, FetchLimits, Position
from tidelog.services.broker.read.epoch_ends import epoch_end
from tidelog.services.broker.read.largest_timestamp import largest_timestamp
from tidelog.services.broker.read.long_poll import LongPolls
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.read.topic_log import partitions_in, place_of, shard_page, version_with_list
from tidelog.services.broker.shard.entry_epochs import leader_epochs
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.topics import Topics
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest

COUNTED_FROM_END = (Anchor.LATEST, Anchor.FROM_END)
"""Positions that depend on the end of the log."""


class LocalReads:
    """`resolve`, `fetch` and `topic_log` of `api.Broker` for shards led here. Raises `NotLeader` or `LeaderUnknown` for
    the others."""

    def __init__(
        self,
        reader: PartitionReader,
        shards: ShardSet,
        topics: Topics,
        polls: LongPolls,
    ) -> None:
        self._reader = reader
        self._shards = shards
        self._topics = topics
        self._polls = polls

    async def resolve(self, topic: str, partition: int, position: Position, *, fresh: bool) -> int:
        leader, state = await self.state(topic, partition)
        if position.anchor is Anchor.OFFSET:
            return position.value
        offset = await self.offset_of(leader, state, position)
        from_end = position.anchor in COUNTED_FROM_END
        await self._prove_for(leader, state, state.high_watermark if from_end else offset, fresh=fresh)
        return offset

    async def offset_of(self, leader: ShardLeader, state: PartitionState, position: Position) -> int:
        """The offset of `position` as this broker knows it, without a proof."""
        match position.anchor:
            case Anchor.OFFSET:
                return position.value
            case Anchor.EARLIEST:
                return state.log_start_offset
            case Anchor.LATEST | Anchor.FROM_END:
                return max(state.log_start_offset, state.high_watermark - position.value)
            case Anchor.TIMESTAMP:
                with self._shards.reading(leader):
                    return await self._reader.first_at(leader.partitions, state, position.value)

    async def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits) -> Fetched:
        leader, state = await self.state(topic, partition)
        if offset == state.high_watermark and limits.wait_ms > 0:
            state.check_readable(offset)
            await self._polls.wait((state,), limits.wait_ms / 1000)
            self._shards.check_leading(leader)
        await self._prove_for(leader, state, offset, fresh=limits.fresh)
        state.check_readable(offset)
        with self._shards.reading(leader):
            batches, next_offset = await self._reader.read(leader.partitions, state, offset, limits)
        return Fetched(batches, next_offset, state.log_start_offset, state.high_watermark)

    async def epoch_end(self, topic: str, partition: int, epoch: int) -> EpochEnd:
        leader, state = await self.state(topic, partition)
        await self._shards.prove_leading(leader)
        state.check_exists()
        epochs = leader_epochs(state, leader.partitions.entry_epochs)
        start, end = state.log_start_offset, state.high_watermark
        return epoch_end(epochs, leader.epoch, epoch, log_start_offset=start, high_watermark=end)

    async def largest_timestamp(self, topic: str, partition: int) -> int:
        leader, state = await self.state(topic, partition)
        with self._shards.reading(leader):
            offset = await largest_timestamp(self._reader, leader.partitions, state)
        await self._shards.prove_leading(leader)
        return offset

    async def shard_log(self, topic: Topic, shard: int, request: TopicLogRequest) -> TopicLogDescription:
        """The page of one shard (`topic_log`)."""
        leader, place = self._shards.leading(shard), place_of(request)
        numbers = partitions_in(topic, shard, request)
        states = {number: (await self.state_of(topic, number))[1] for number in numbers}
        log = leader.partitions.log
        if place is not None and place.version is not None:
            return await shard_page(topic, await version_with_list(log, place.version, topic), request)
        if request.fresh and states:
            await self._shards.prove_leading(leader)
            with self._shards.reading(leader):
                await leader.partitions.refresh(next(iter(states.values())))
        manifest = await log.with_lists(leader.partitions.manifest or await log.newest(), [topic.topic_id])
        ends = {number: state.high_watermark for number, state in states.items()}
        return await shard_page(topic, manifest, request, ends)

    async def state(self, name: str, partition: int) -> tuple[ShardLeader, PartitionState]:
        return await self.state_of(await self._topics.known(name, partition), partition)

    async def state_of(self, topic: Topic, partition: int) -> tuple[ShardLeader, PartitionState]:
        leader, state = self.loaded(topic, partition)
        return leader, state or await leader.partitions.load(topic, partition)

    def loaded(self, topic: Topic, partition: int) -> tuple[ShardLeader, PartitionState | None]:
        """The leader of a partition, and its state unless that has to be read from the store."""
        leader = self._shards.leading(topic.shards[partition])
        return leader, leader.partitions.loaded(topic.partition(partition))

    async def prove(self, leader: ShardLeader, *, by_end: bool, fresh: bool) -> None:
        """Prove the leadership as far as an answer needs it. `by_end`: it depends on the end of the log."""
        if by_end and fresh:
            await self._shards.prove_leading(leader)
        elif fresh:
            await self._shards.prove_led_lately(leader)

    async def _prove_for(self, leader: ShardLeader, state: PartitionState, offset: int, *, fresh: bool) -> None:
        """Prove the leadership as far as an answer from `offset` on needs it."""
        beyond = offset > state.high_watermark
        await self.prove(leader, by_end=offset >= state.high_watermark, fresh=fresh or beyond)
