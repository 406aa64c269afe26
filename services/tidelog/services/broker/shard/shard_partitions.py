"""The partitions of one shard; each is loaded when it is first used.

A leader of 10,000 partitions opens with the headers of its WAL alone. The spans of a partition wait here until the
partition is used. The shard's manifest is read once, for the first of its partitions; the list of a topic, if it has
one, is read for the first partition of the topic. At most `LISTS_BYTES` of lists stay in memory for the partitions, so
a view may lack its segments until a reader needs them (`read_list`).

All loaded partitions show the newest version of the manifest that passed through here (`apply`). A partition switches
to it in one step (inv. 5)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import structs

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.shard.entry_epochs import EntryEpochs
from tidelog.services.broker.shard.hot_tail import EntryName
from tidelog.services.broker.shard.idempotence import ProducerMemory, ProducerTable
from tidelog.services.broker.shard.partition_state import HotSpan, PartitionState, hot_span
from tidelog.storage.errors import Conflict, Corrupt, Fenced, NewerFormat
from tidelog.storage.layout import TopicPartition
from tidelog.storage.loop_turns import LoopTurns
from tidelog.storage.manifests.partition_view import view_of
from tidelog.storage.manifests.shard_log import LISTS_BYTES, ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.topic_lists import lacks_list
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.single_flight import SingleFlight
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import ProducerMark, WalHeader
from tidelog.storage.wal.wal_index import IndexedEntry

SWITCHED_A_TURN = 500
"""Partitions that switch to a new version before other tasks run: some 4 ms."""

_log = logging.getLogger(__name__)


class ShardPartitions:
    """Partition states by topic and number. Loading raises `Unavailable`, `Corrupt`. `on_overtaken` is called with a
    proof that another broker leads the shard."""

    def __init__(self, log: ShardLog, wal: Wal, producer_memory: ProducerMemory | None = None) -> None:
        self.wal = wal
        self.log = log
        self.entry_epochs = EntryEpochs()
        self._producer_memory = producer_memory
        self._states: dict[TopicPartition, PartitionState] = {}
        self._spans: defaultdict[TopicPartition, list[HotSpan]] = defaultdict(list)
        self._marks: defaultdict[TopicPartition, list[ProducerMark]] = defaultdict(list)
        self._loads: SingleFlight[TopicPartition, PartitionState] = SingleFlight()
        self._opens: SingleFlight[None, None] = SingleFlight()
        self._turns = LoopTurns(SWITCHED_A_TURN)
        self._manifest: ShardManifest | None = None
        self._listed: list[str] = []
        self._created_here: set[str] = set()
        self._holes: Sequence[int] = ()
        self.on_overtaken: Callable[[str], None] = _ignore

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(tuple(self._states.values()))

    def __len__(self) -> int:
        """How many partitions are loaded or have records in the WAL."""
        return len(self._states.keys() | self._spans.keys())

    @property
    def manifest(self) -> ShardManifest | None:
        """The version that all loaded partitions show; None before the first one is read."""
        return self._manifest

    def adopt(self, entries: Sequence[IndexedEntry], holes: Sequence[int] = ()) -> None:
        """Index the log as it was read. `holes`: numbers of lost entries whose headers are unknown."""
        self._holes = tuple(holes)
        for entry in entries:
            self.entry_epochs.add(entry.header)
            self._index(entry.header)

    def loaded(self, topic_partition: TopicPartition) -> PartitionState | None:
        return self._states.get(topic_partition)

    async def load(self, topic: Topic, number: int) -> PartitionState:
        topic_partition = topic.partition(number)
        if state := self._states.get(topic_partition):
            return state
        return await self._loads.run(topic_partition, lambda: self._read(topic, topic_partition))

    async def refresh(self, state: PartitionState) -> None:
        """Switch to the newest manifest; a compactor may have appended it. Raises like `apply`, and `Corrupt` if the
        list of the partition's topic is damaged."""
        newest = await self.log.newest()
        newest = await self.log.with_lists(newest, (state.topic_partition.topic_id,))
        await self.apply(newest)
        self._show(state, newest)  # another task may be switching the others still

    async def read_list(self, state: PartitionState, /) -> None:
        """Read the list of the partition's topic again, which is no longer in memory. Raises like `refresh`."""
        topic_id = state.topic_partition.topic_id
        while (manifest := self._manifest) and lacks_list(manifest, topic_id):
            await self._read_list(manifest, topic_id)
        if manifest:
            self._show(state, manifest)
        state.check_exists()

    async def apply(self, manifest: ShardManifest) -> None:
        """Switch every loaded partition to `manifest`, unless a newer version passed through before. The lists of all
        loaded topics are read first. Each partition switches in one step; other tasks run between thousands of them.
        Partitions whose topic has a damaged list stay as they are.

        If a partition ends beyond its high watermark there, another broker leads the shard and has archived records
        that this one does not know: then `on_overtaken` is called, and this raises `Fenced`. Raises `Unavailable`."""
        damaged: set[str] = set()
        while self._is_newer(manifest) and (lacking := self._lacking_lists(manifest) - damaged):
            try:
                manifest = await self.log.with_lists(manifest, lacking)
            except Conflict:
                manifest = await self.log.latest()
            except (Corrupt, NewerFormat):
                manifest = await self._with_whole_lists(manifest, lacking, damaged)
        if self._is_newer(manifest):
            await self._switch(manifest)

    def topic_created(self, topic: Topic) -> None:
        """This broker has just created the topic, so the manifest has nothing of it and need not be read."""
        self._created_here.add(topic.topic_id)

    def deleted(self, topic: Topic) -> None:
        """Drop a topic's partitions. Fetches that wait for their records wake up and fail."""
        self._created_here.discard(topic.topic_id)
        for number in range(topic.partition_count):
            topic_partition = topic.partition(number)
            self._spans.pop(topic_partition, None)
            self._marks.pop(topic_partition, None)
            if state := self._states.pop(topic_partition, None):
                state.set_deleted()

    def wake_all(self) -> None:
        for state in self:
            state.wake()

    def _index(self, header: WalHeader) -> None:
        entry = EntryName(self.wal.shard, header.seq)
        for span in header.spans:
            self._spans[span.topic_partition].append(hot_span(entry, span))
        for mark in header.producers:
            self._marks[mark.topic_partition].append(mark)

    async def _read(self, topic: Topic, place: TopicPartition) -> PartitionState:
        if topic.topic_id not in self._created_here:
            await self._opens.run(None, self._open)
        while (manifest := self._manifest) and lacks_list(manifest, topic.topic_id):
            await self._read_list(manifest, topic.topic_id)
        view = view_of(self._manifest or ShardManifest(self.wal.shard), place)
        state = PartitionState(topic.name, view, ProducerTable(memory=self._producer_memory))
        state.recover(self._spans.get(place, ()), self._marks.get(place, ()), self._holes)
        self._spans.pop(place, None)
        self._marks.pop(place, None)
        self._states[place] = state
        return state

    async def _open(self) -> None:
        """Read the manifest, unless one passed through before. It is at least as new as the log that was adopted."""
        if self._manifest is None:
            await self.apply(await self.log.newest())

    async def _read_list(self, manifest: ShardManifest, topic_id: str) -> None:
        """Complete the current manifest, or switch to the newest one if a list of the current one was collected."""
        try:
            read = await self.log.with_lists(manifest, (topic_id,))
        except Conflict:
            await self.apply(await self.log.latest())
        else:
            if self._manifest is manifest:
                self._manifest = read
                self._drop_lists(topic_id)

    def _is_newer(self, manifest: ShardManifest) -> bool:
        return self._manifest is None or manifest.version > self._manifest.version

    def _lacking_lists(self, manifest: ShardManifest) -> set[str]:
        """The loaded topics whose lists have to be read, because they are new."""
        return {state.topic_partition.topic_id for state in self if state.view.needs_list(manifest)}

    async def _with_whole_lists(
        self, manifest: ShardManifest, topic_ids: Iterable[str], damaged: set[str]
    ) -> ShardManifest:
        """`manifest` with those of the lists that are not damaged; the others' topics are added to `damaged`."""
        for topic_id in topic_ids:
            try:
                manifest = await self.log.with_lists(manifest, (topic_id,))
            except (Corrupt, NewerFormat) as error:
                damaged.add(topic_id)
                _log.error(
                    "partitions of shard %d do not follow version %d: %s", self.wal.shard, manifest.version, error
                )
        return manifest

    async def _switch(self, manifest: ShardManifest) -> None:
        before, self._manifest = self._manifest, manifest
        if before is None or manifest.floor.number > before.floor.number:
            self._drop_archived(manifest.floor.number)
        for state in self:
            await self._turns.take()
            self._show(state, manifest)
        self._drop_lists()

    def _show(self, state: PartitionState, manifest: ShardManifest) -> None:
        """Switch one partition to `manifest`, unless it shows a newer version already."""
        if manifest.version < state.view.version or state.view.needs_list(manifest):
            return
        view = state.view.in_version(manifest)
        if view.version == state.view.version:
            state.view = state.view if view.segments is None else view
        elif view.cold_end > state.high_watermark:
            reason = (
                f"partition {view.place.partition} of {state.topic!r} is archived up to offset {view.cold_end}, and "
                f"this broker's log ends at offset {state.high_watermark}"
            )
            self.on_overtaken(reason)
            raise Fenced(f"another broker leads shard {self.wal.shard}: {reason}")
        elif view.cold_end < state.cold_end:
            state.set_deleted()  # a cold end never moves back, so the topic has left the shard
        else:
            state.apply(view)

    def _drop_lists(self, just_read: str = "") -> None:
        """Keep `LISTS_BYTES` of lists in memory, and the one of the topic `just_read`. Those that were read longest ago
        go first; a reader reads them again (`read_list`)."""
        assert self._manifest is not None
        topics = self._manifest.topics
        sizes = {topic_id: topic.stored.size_bytes for topic_id, topic in topics.items() if topic.stored and topic.base}
        known = [topic_id for topic_id in self._listed if topic_id in sizes and topic_id != just_read]
        self._listed = [*(sizes.keys() - {*known, just_read}), *known, *([just_read] if just_read else [])]
        over_bytes = sum(sizes.values()) - LISTS_BYTES
        dropped: dict[str, TopicState] = {}
        while over_bytes > 0 and self._listed[0] != just_read:
            topic_id = self._listed.pop(0)
            dropped[topic_id] = structs.replace(topics[topic_id], base=None)
            over_bytes -= sizes[topic_id]
        if not dropped:
            return
        self._manifest = structs.replace(self._manifest, topics={**topics, **dropped})
        for state in self:
            topic = dropped.get(state.topic_partition.topic_id)
            if topic and topic.list_key == state.view.list_key:
                state.view = structs.replace(state.view, segments=None)

    def _drop_archived(self, floor: int) -> None:
        """Forget the records of unloaded partitions in entries below `floor`: they are in segments."""
        for place, spans in self._spans.items():
            if spans and spans[0].entry.seq < floor:
                self._spans[place] = [span for span in spans if span.entry.seq >= floor]


def _ignore(_reason: str) -> None:
    """No leader is attached yet."""
