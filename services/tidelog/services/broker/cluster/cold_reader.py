"""Reads cold records of partitions that other brokers lead, from the bucket, without the leader.

It caches the manifest of each partition.

- Records in the manifest are returned if it was the newest at most `READERS_TRUST_S` before the call began, so that no
  deleted record is returned (`leadership_proof`). A HEAD of the next version proves that: two per second for a
  partition that is read continuously, sent before the call that needs it.
- An offset beyond the manifest is for the leader to answer. The manifest is read again if it is older than a bound,
  which doubles from `FRESH_S_MIN` to `FRESH_S_MAX` while that finds nothing new: a reader at the end of the log costs a
  LIST now and then. Without a leader, it is read again every `FRESH_S_MIN`.
- A segment that was replaced is found in the newest manifest.

These readers know no high watermark except the cold end.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from cachetools import LRUCache

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import Fetched, FetchLimits
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.shard.leadership_proof import READERS_TRUST_S
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.storage.errors import TidelogError
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock
from tidelog.storage.single_flight import SingleFlight
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec

FRESH_S_MIN = 3.0
FRESH_S_MAX = 300.0
SEGMENTS_MAX = 200_000
"""Segments of all cached manifests. One takes some 500 bytes."""
MANIFEST_OVERHEAD = 200
"""A manifest counts as so many segments more, so at most 1,000 manifests are cached."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Kept:
    log: ManifestLog
    manifest: Manifest
    read_at_s: float
    fresh_s: float = FRESH_S_MIN


def _size(kept: _Kept) -> int:
    return min(len(kept.manifest.segments) + MANIFEST_OVERHEAD, SEGMENTS_MAX)


class ColdReader:
    """Raises `OutOfRange`, `NotFound`, `Unavailable`, `Corrupt`."""

    def __init__(self, store: ObjectStore, reader: PartitionReader, clock: Clock) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock
        self._kept: LRUCache[TopicPartition, _Kept] = LRUCache(SEGMENTS_MAX, getsizeof=_size)
        self._flights: SingleFlight[TopicPartition, _Kept] = SingleFlight()
        self._ahead: set[asyncio.Task[None]] = set()

    async def holds(self, topic: Topic, partition: int, offset: int, *, leader_known: bool) -> bool:
        """Whether the record at `offset` is cold, as far as this broker knows."""
        manifest = await self._manifest(topic, partition, offset, leader_known=leader_known)
        return manifest.log_start_offset <= offset < manifest.cold_end

    async def fetch(
        self, topic: Topic, partition: int, offset: int, limits: FetchLimits, *, leader_known: bool
    ) -> Fetched | None:
        """Records from `offset` on; None if it is not cold, as far as this broker knows."""
        manifest = await self._manifest(topic, partition, offset, leader_known=leader_known)
        if not manifest.log_start_offset <= offset < manifest.cold_end:
            return None
        state = PartitionState(topic.name, topic.shards[partition], manifest)
        source = _ColdPartition(self, topic, Wal(self._store, state.shard, ParquetWalCodec()))
        batches, next_offset = await self._reader.read(source, state, offset, limits)
        return Fetched(batches, next_offset, state.log_start_offset, state.high_watermark)

    def knows(self, topic: Topic, partition: int, offset: int) -> bool:
        """Whether the cached manifest holds `offset`. Costs no request."""
        kept = self._kept.get(topic.partition(partition))
        return kept is not None and kept.manifest.log_start_offset <= offset < kept.manifest.cold_end

    def forget(self, topic: Topic) -> None:
        """Drop the manifests of a deleted topic."""
        for number in range(topic.partition_count):
            self._kept.pop(topic.partition(number), None)

    async def newest(self, topic: Topic, topic_partition: TopicPartition) -> Manifest:
        """The newest manifest: a LIST, and a GET if it is newer than the cached one."""
        return (await self._flights.run(topic_partition, lambda: self._read(topic, topic_partition))).manifest

    async def _manifest(self, topic: Topic, partition: int, offset: int, *, leader_known: bool) -> Manifest:
        """A manifest that contains `offset` and was the newest a moment ago, or one that does not contain it."""
        topic_partition = topic.partition(partition)
        kept = self._kept.get(topic_partition)
        if kept:
            if offset < kept.manifest.cold_end:
                return await self._current(topic, topic_partition)
            if self._clock.monotonic() - kept.read_at_s < (kept.fresh_s if leader_known else FRESH_S_MIN):
                return kept.manifest
        manifest = await self.newest(topic, topic_partition)
        if offset < manifest.cold_end:
            return await self._current(topic, topic_partition)
        if kept and (now := self._kept.get(topic_partition)):
            self._kept[topic_partition] = replace(now, fresh_s=min(2 * kept.fresh_s, FRESH_S_MAX))
        return manifest

    async def _current(self, topic: Topic, topic_partition: TopicPartition) -> Manifest:
        """A manifest that was the newest at a moment at most `READERS_TRUST_S` before this call began, or later."""
        since_s = self._clock.monotonic() - READERS_TRUST_S
        while True:
            kept = self._kept.get(topic_partition)
            if kept and kept.log.known_at_s > since_s:
                if kept.log.known_at_s < since_s + READERS_TRUST_S / 2:
                    self._renew_ahead(topic, topic_partition)
                return kept.manifest
            await self._flights.run(topic_partition, lambda: self._renewed(topic, topic_partition))

    def _renew_ahead(self, topic: Topic, topic_partition: TopicPartition) -> None:
        """For the next call, which comes before the records of this one are read."""
        if not self._flights.running(topic_partition):
            renewing = asyncio.create_task(self._try_to_renew(topic, topic_partition))
            self._ahead.add(renewing)
            renewing.add_done_callback(self._ahead.discard)

    async def _try_to_renew(self, topic: Topic, topic_partition: TopicPartition) -> None:
        try:
            await self._flights.run(topic_partition, lambda: self._renewed(topic, topic_partition))
        except TidelogError as error:
            _log.debug("cannot renew the manifest of %s; the next read retries: %s", topic.name, error)

    async def _renewed(self, topic: Topic, topic_partition: TopicPartition) -> _Kept:
        kept = self._kept.get(topic_partition)
        if kept and await kept.log.renew():
            return kept
        return await self._read(topic, topic_partition)

    async def _read(self, topic: Topic, topic_partition: TopicPartition) -> _Kept:
        kept = self._kept.get(topic_partition)
        log = kept.log if kept else ManifestLog(self._store, topic.name, topic_partition, self._clock)
        read_at_s = self._clock.monotonic()
        kept = self._kept[topic_partition] = _Kept(log, await log.latest(), read_at_s)
        return kept


class _ColdPartition:
    """The `Partitions` of `PartitionReader`: provides a newer manifest when a segment is missing."""

    def __init__(self, reader: ColdReader, topic: Topic, wal: Wal) -> None:
        self.wal = wal
        self._reader = reader
        self._topic = topic

    async def refresh(self, state: PartitionState) -> None:
        state.apply_cold_manifest(await self._reader.newest(self._topic, state.topic_partition))
