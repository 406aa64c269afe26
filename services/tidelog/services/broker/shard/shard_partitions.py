"""The partitions of one shard; each is loaded when it is first used.

A leader of 10,000 partitions opens with the headers of its WAL alone. The spans of a partition wait here until the
partition is used; only then is its manifest read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.shard.hot_tail import EntryName
from tidelog.services.broker.shard.idempotence import ProducerMemory, ProducerTable
from tidelog.services.broker.shard.partition_state import HotSpan, PartitionState, hot_span
from tidelog.services.broker.telemetry.measurements import Measurements
from tidelog.storage.errors import Fenced
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.single_flight import SingleFlight
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import ProducerMark, WalHeader
from tidelog.storage.wal.wal_index import IndexedEntry


class ShardPartitions:
    """Partition states by topic and number. Loading raises `Unavailable`, `Corrupt`. Every manifest that passes through
    is reported to `measurements`. `on_overtaken` is called with a proof that another broker leads the shard."""

    def __init__(
        self,
        store: ObjectStore,
        wal: Wal,
        measurements: Measurements | None = None,
        producer_memory: ProducerMemory | None = None,
    ) -> None:
        self.wal = wal
        self._store = store
        self.measurements = measurements or Measurements()
        self._producer_memory = producer_memory
        self._states: dict[TopicPartition, PartitionState] = {}
        self._spans: defaultdict[TopicPartition, list[HotSpan]] = defaultdict(list)
        self._marks: defaultdict[TopicPartition, list[ProducerMark]] = defaultdict(list)
        self._loads: SingleFlight[TopicPartition, PartitionState] = SingleFlight()
        self._newer: dict[TopicPartition, Manifest] = {}
        self._created_here: set[str] = set()
        self._holes: Sequence[int] = ()
        self.on_overtaken: Callable[[str], None] = _ignore

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(tuple(self._states.values()))

    def __len__(self) -> int:
        """How many partitions are loaded or have records in the WAL."""
        return len(self._states.keys() | self._spans.keys())

    def adopt(self, entries: Sequence[IndexedEntry], holes: Sequence[int] = ()) -> None:
        """Index the log as it was read. `holes`: numbers of lost entries whose headers are unknown."""
        self._holes = tuple(holes)
        for entry in entries:
            self._index(entry.header)

    def loaded(self, topic_partition: TopicPartition) -> PartitionState | None:
        return self._states.get(topic_partition)

    async def load(self, topic: Topic, number: int) -> PartitionState:
        topic_partition = topic.partition(number)
        if state := self._states.get(topic_partition):
            return state
        return await self._loads.run(topic_partition, lambda: self._read(topic, topic_partition))

    async def refresh(self, state: PartitionState) -> None:
        """Read the newest manifest; a compactor may have appended it. If it ends beyond the high watermark, another
        broker leads the shard and has archived records that this one does not know: then `on_overtaken` is called, and
        this raises `Fenced`."""
        manifest = await ManifestLog(self._store, state.topic, state.topic_partition).latest()
        if manifest.cold_end > state.high_watermark:
            reason = (
                f"partition {state.topic_partition.partition} of {state.topic!r} is archived up to offset "
                f"{manifest.cold_end}, and this broker's log ends at offset {state.high_watermark}"
            )
            self.on_overtaken(reason)
            raise Fenced(f"another broker leads shard {self.wal.shard}: {reason}")
        self.measurements.cold.manifest_read(manifest)
        state.apply_manifest(manifest)

    def apply_manifests(self, manifests: Sequence[Manifest]) -> None:
        """Switch to newer manifests, each partition in one step (inv. 5)."""
        for manifest in manifests:
            self.measurements.cold.manifest_read(manifest)
            topic_partition = manifest.topic_partition
            if state := self._states.get(topic_partition):
                state.apply_manifest(manifest)
                continue
            if self._loads.running(topic_partition):
                self._newer[topic_partition] = manifest  # the load may have read the version before it
            if spans := self._spans.pop(topic_partition, None):
                self._spans[topic_partition] = [span for span in spans if span.next_offset > manifest.cold_end]

    def unarchived(self) -> int:
        """How many partitions have records that are in no segment, as far as this broker knows."""
        loaded = sum(state.high_watermark > state.cold_end for state in self._states.values())
        return loaded + sum(bool(spans) for spans in self._spans.values())

    async def refresh_behind(self, floor: int) -> None:
        """Refresh the partitions that still refer to WAL entries below `floor`: an earlier pass archived them and
        failed before it could apply its manifests."""
        for state in self:
            oldest = next(state.spans_from(state.cold_end), None)
            if oldest and oldest.entry.seq < floor:
                await self.refresh(state)
        for topic_partition, spans in self._spans.items():
            if spans and spans[0].entry.seq < floor and not self._loads.running(topic_partition):
                self._spans[topic_partition] = [span for span in spans if span.entry.seq >= floor]

    def topic_created(self, topic: Topic) -> None:
        """This broker has just created the topic, so its partitions have no manifests and none needs to be read."""
        self._created_here.add(topic.topic_id)

    def was_created_here(self, topic: Topic) -> bool:
        """Whether this broker created the topic and has led the shard since."""
        return topic.topic_id in self._created_here

    def deleted(self, topic: Topic) -> None:
        """Drop a topic's partitions. Fetches that wait for their records wake up and fail."""
        self._created_here.discard(topic.topic_id)
        for number in range(topic.partition_count):
            topic_partition = topic.partition(number)
            self._spans.pop(topic_partition, None)
            self._marks.pop(topic_partition, None)
            self._newer.pop(topic_partition, None)
            if state := self._states.pop(topic_partition, None):
                state.deleted = True
                state.wake()

    def wake_all(self) -> None:
        for state in self:
            state.wake()

    def _index(self, header: WalHeader) -> None:
        entry = EntryName(self.wal.shard, header.seq)
        for span in header.spans:
            self._spans[span.topic_partition].append(hot_span(entry, span))
        for mark in header.producers:
            self._marks[mark.topic_partition].append(mark)

    async def _read(self, topic: Topic, topic_partition: TopicPartition) -> PartitionState:
        if topic.topic_id in self._created_here:
            manifest = Manifest(topic_partition)
        else:
            manifest = await ManifestLog(self._store, topic.name, topic_partition).latest()
        newer = self._newer.pop(topic_partition, None)
        if newer and newer.version > manifest.version:
            manifest = newer
        self.measurements.cold.manifest_read(manifest)
        producers = ProducerTable(memory=self._producer_memory)
        state = PartitionState(topic.name, self.wal.shard, manifest, producers)
        spans, marks = self._spans.pop(topic_partition, []), self._marks.pop(topic_partition, [])
        state.recover(spans, marks, self._holes)
        self._states[topic_partition] = state
        return state


def _ignore(_reason: str) -> None:
    """No leader is attached yet."""
