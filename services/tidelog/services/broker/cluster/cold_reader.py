"""Cold records for readers of partitions that are led elsewhere, from the bucket alone, without the leader.

A partition's manifest is kept once it was read. It is read again when an offset lies beyond what it holds and it is
older than a while, which doubles from `FRESH_S_MIN` to `FRESH_S_MAX` as long as that is in vain: so a reader who works
off a backlog costs hardly a request for manifests, one at the end of the log a LIST now and then, and what the kept
manifest does not hold is the leader's to answer. While there is no leader, it is read again each `FRESH_S_MIN`. What
was cold stays so, so a manifest that is old is right as far as it goes (inv. 5), but for records that were deleted
since: those are gone for readers here after `FRESH_S_MAX`. A segment that was replaced is looked up anew.

Readers here know of no high watermark but the cold end: that is what they are told.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from tidelog.coordinator.topic import Topic
from tidelog.services.broker.api import Fetched, FetchLimits
from tidelog.services.broker.partition_reader import PartitionReader
from tidelog.services.broker.partition_state import PartitionState
from tidelog.services.broker.single_flight import SingleFlight
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock
from tidelog.storage.wal import Wal
from tidelog.storage.wal_codec import ParquetWalCodec

FRESH_S_MIN = 3.0
FRESH_S_MAX = 300.0
MANIFESTS_MAX = 1_000
SEGMENTS_MAX = 200_000
"""Of all manifests kept: a segment's line takes some 500 bytes."""


@dataclass(frozen=True)
class _Kept:
    log: ManifestLog
    manifest: Manifest
    read_at_s: float
    fresh_s: float = FRESH_S_MIN


class ColdReader:
    """Raises `OutOfRange`, `NotFound`, `Unavailable`, `Corrupt`."""

    def __init__(self, store: ObjectStore, reader: PartitionReader, clock: Clock) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock
        self._kept: OrderedDict[TopicPartition, _Kept] = OrderedDict()
        self._segments = 0
        self._flights: SingleFlight[TopicPartition, _Kept] = SingleFlight()

    async def holds(self, topic: Topic, partition: int, offset: int, *, leader_known: bool) -> bool:
        """Whether the record at `offset` is cold, as far as is known here."""
        manifest = await self._manifest(topic, partition, offset, leader_known=leader_known)
        return manifest.log_start_offset <= offset < manifest.cold_end

    async def fetch(
        self, topic: Topic, partition: int, offset: int, limits: FetchLimits, *, leader_known: bool
    ) -> Fetched | None:
        """Records from `offset` on, None if that is not cold, as far as is known here."""
        manifest = await self._manifest(topic, partition, offset, leader_known=leader_known)
        if not manifest.log_start_offset <= offset < manifest.cold_end:
            return None
        state = PartitionState(topic.name, topic.shards[partition], manifest)
        source = _ColdPartition(self, topic, Wal(self._store, state.shard, ParquetWalCodec()))
        batches, next_offset = await self._reader.read(source, state, offset, limits)
        return Fetched(batches, next_offset, state.log_start_offset, state.high_watermark)

    def forget(self, topic: Topic) -> None:
        """It was deleted."""
        for number in range(topic.partition_count):
            self._drop(topic.partition(number))

    async def newest(self, topic: Topic, topic_partition: TopicPartition) -> Manifest:
        """The manifest as it is now; one LIST, and a GET if it is a newer one."""
        return (await self._flights.run(topic_partition, lambda: self._read(topic, topic_partition))).manifest

    async def _manifest(self, topic: Topic, partition: int, offset: int, *, leader_known: bool) -> Manifest:
        """One that holds `offset`, or a fresh one."""
        topic_partition = topic.partition(partition)
        kept = self._kept.get(topic_partition)
        if kept:
            age_s = self._clock.monotonic() - kept.read_at_s
            held = offset < kept.manifest.cold_end and age_s < FRESH_S_MAX
            if held or age_s < (kept.fresh_s if leader_known else FRESH_S_MIN):
                self._kept.move_to_end(topic_partition)
                return kept.manifest
        manifest = await self.newest(topic, topic_partition)
        if kept and offset >= manifest.cold_end and (now := self._kept.get(topic_partition)):
            self._kept[topic_partition] = replace(now, fresh_s=min(2 * kept.fresh_s, FRESH_S_MAX))
        return manifest

    async def _read(self, topic: Topic, topic_partition: TopicPartition) -> _Kept:
        kept = self._kept.get(topic_partition)
        log = kept.log if kept else ManifestLog(self._store, topic.name, topic_partition)
        read_at_s = self._clock.monotonic()
        kept = _Kept(log, await log.latest(), read_at_s)
        self._drop(topic_partition)
        self._kept[topic_partition] = kept
        self._segments += len(kept.manifest.segments)
        while len(self._kept) > 1 and (len(self._kept) > MANIFESTS_MAX or self._segments > SEGMENTS_MAX):
            self._drop(next(iter(self._kept)))
        return kept

    def _drop(self, topic_partition: TopicPartition) -> None:
        if kept := self._kept.pop(topic_partition, None):
            self._segments -= len(kept.manifest.segments)


class _ColdPartition:
    """What `PartitionReader` needs besides the state: a newer manifest, once a segment is not there any more."""

    def __init__(self, reader: ColdReader, topic: Topic, wal: Wal) -> None:
        self.wal = wal
        self._reader = reader
        self._topic = topic

    async def refresh(self, state: PartitionState) -> None:
        state.grown(await self._reader.newest(self._topic, state.topic_partition))
