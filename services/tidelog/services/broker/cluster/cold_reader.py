"""Cold records for readers of partitions that are led elsewhere, from the bucket alone, without the leader.

A partition's manifest is kept once it was read.

- Records that it holds are given out if it was the newest at most `READERS_TRUST_S` before the call began, so that
  nothing is given out that was deleted (`log_start_trust`). A HEAD of the version after it tells: two a second for a
  partition that is read from all the time, sent ahead of the call that needs it.
- An offset beyond it is the leader's to answer. The manifest is read again then, if it is older than a while, which
  doubles from `FRESH_S_MIN` to `FRESH_S_MAX` as long as that is in vain: a reader at the end of the log costs a LIST
  now and then. While there is no leader, it is read again each `FRESH_S_MIN`.
- A segment that was replaced is looked up anew.

Readers here know of no high watermark but the cold end: that is what they are told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace

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
from tidelog.storage.wal import Wal
from tidelog.storage.wal_codec import ParquetWalCodec

FRESH_S_MIN = 3.0
FRESH_S_MAX = 300.0
MANIFESTS_MAX = 1_000
SEGMENTS_MAX = 200_000
"""Of all manifests kept: a segment's line takes some 500 bytes."""

_log = logging.getLogger(__name__)


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
        self._ahead: set[asyncio.Task[None]] = set()

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
        """One that holds `offset` and was the newest a moment ago, or one that does not hold it."""
        topic_partition = topic.partition(partition)
        kept = self._kept.get(topic_partition)
        if kept:
            self._kept.move_to_end(topic_partition)
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
        """The manifest that was the newest at a moment at most `READERS_TRUST_S` before this call began, or later."""
        since_s = self._clock.monotonic() - READERS_TRUST_S
        while True:
            kept = self._kept.get(topic_partition)
            if kept and kept.log.known_at_s > since_s:
                if kept.log.known_at_s < since_s + READERS_TRUST_S / 2:
                    self._renew_ahead(topic, topic_partition)
                return kept.manifest
            await self._flights.run(topic_partition, lambda: self._renewed(topic, topic_partition))

    def _renew_ahead(self, topic: Topic, topic_partition: TopicPartition) -> None:
        """For the next call, which will come before this one's records are read."""
        if not self._flights.running(topic_partition):
            renewing = asyncio.create_task(self._try_to_renew(topic, topic_partition))
            self._ahead.add(renewing)
            renewing.add_done_callback(self._ahead.discard)

    async def _try_to_renew(self, topic: Topic, topic_partition: TopicPartition) -> None:
        try:
            await self._flights.run(topic_partition, lambda: self._renewed(topic, topic_partition))
        except TidelogError as error:
            _log.debug("the manifest of %s is not renewed, its next reader will see: %s", topic.name, error)

    async def _renewed(self, topic: Topic, topic_partition: TopicPartition) -> _Kept:
        kept = self._kept.get(topic_partition)
        if kept and await kept.log.renew():
            return kept
        return await self._read(topic, topic_partition)

    async def _read(self, topic: Topic, topic_partition: TopicPartition) -> _Kept:
        kept = self._kept.get(topic_partition)
        log = kept.log if kept else ManifestLog(self._store, topic.name, topic_partition, self._clock)
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
        state.apply_cold_manifest(await self._reader.newest(self._topic, state.topic_partition))
