"""Reads cold records of partitions that other brokers lead, from the bucket, without the leader.

It caches one version of the manifest of each shard, for all its partitions.

- Records in the manifest are returned if it was the newest at most `READERS_TRUST_S` before the call began, so that no
  deleted record is returned (`leadership_proof`). A HEAD of the next version proves that: two per second for a shard
  that is read continuously, sent before the call that needs it.
- An offset beyond the manifest is for the leader to answer. The manifest is read again if it is older than a bound of
  the partition, which doubles from `FRESH_S_MIN` to `FRESH_S_MAX` while that finds nothing new: a reader at the end of
  the log costs a request now and then. Without a leader, it is read again every `FRESH_S_MIN`.
- A segment that was replaced is found in the newest manifest.

These readers know no high watermark except the cold end.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, replace

from cachetools import LRUCache

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import Fetched, FetchLimits
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.shard.leadership_proof import READERS_TRUST_S
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.storage.errors import Conflict, TidelogError
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.partition_view import PartitionView, view_of
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.topic_lists import lacks_list
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.single_flight import SingleFlight
from tidelog.storage.wal.wal import Wal

FRESH_S_MIN = 3.0
FRESH_S_MAX = 300.0
ENDS_MAX = 10_000
"""Partitions whose bound is remembered."""
MANIFESTS_BYTES = 128 * 1024 * 1024
"""Memory of all cached manifests, with the lists that were read."""
TOPIC_BYTES, STATE_BYTES, SPAN_BYTES, LIST_FACTOR = 1_000, 300, 150, 3
"""Memory of a topic, of a partition's state, of a span, and of a byte of a stored list."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Kept:
    """A version of the manifest of the shard of `log`, and when it was last asked whether it is the newest."""

    log: ShardLog
    manifest: ShardManifest
    asked_at_s: float

    @property
    def newest_at_s(self) -> float:
        """The last moment at which this version is known to have been the newest."""
        known = self.log.known
        return self.log.known_at_s if known and known.version == self.manifest.version else -math.inf


def _size_bytes(kept: _Kept) -> int:
    return min(sum(map(_topic_bytes, kept.manifest.topics.values())), MANIFESTS_BYTES)


def _topic_bytes(topic: TopicState) -> int:
    list_bytes = LIST_FACTOR * topic.stored.size_bytes if topic.stored and topic.base else 0
    spans_bytes = SPAN_BYTES * len(topic.added.partition)
    return TOPIC_BYTES + list_bytes + STATE_BYTES * len(topic.partitions) + spans_bytes


class ColdReader:
    """Raises `OutOfRange`, `NotFound`, `Unavailable`, `Corrupt`."""

    def __init__(self, store: ObjectStore, reader: PartitionReader, runtime: Runtime) -> None:
        self._store = store
        self._reader = reader
        self._runtime = runtime
        self._clock = runtime.clock
        self._kept: LRUCache[int, _Kept] = LRUCache(MANIFESTS_BYTES, getsizeof=_size_bytes)
        self._fresh_s: LRUCache[TopicPartition, float] = LRUCache(ENDS_MAX)
        self._flights: SingleFlight[int, _Kept] = SingleFlight()
        self._ahead: set[asyncio.Task[None]] = set()

    async def holds(self, topic: Topic, partition: int, offset: int, *, leader_known: bool) -> bool:
        """Whether the record at `offset` is cold, as far as this broker knows."""
        return _is_in(await self._view(topic, partition, offset, leader_known=leader_known), offset)

    async def fetch(
        self, topic: Topic, partition: int, offset: int, limits: FetchLimits, *, leader_known: bool
    ) -> Fetched | None:
        """Records from `offset` on; None if it is not cold, as far as this broker knows."""
        view = await self._view(topic, partition, offset, leader_known=leader_known)
        if not _is_in(view, offset):
            return None
        state = PartitionState(topic.name, view)
        read = await self._reader.fetch(_ColdPartition(self, topic), state, offset, limits)
        ends = (state.log_start_offset, state.high_watermark)
        return Fetched(read.batches, read.next_offset, *ends, stored=read.stored)

    def knows(self, topic: Topic, partition: int, offset: int) -> bool:
        """Whether the cached manifest holds `offset`. Costs no request."""
        kept, place = self._kept.get(topic.shards[partition]), topic.partition(partition)
        if kept is None or lacks_list(kept.manifest, place.topic_id):
            return False
        return _is_in(view_of(kept.manifest, place), offset)

    async def newest(self, topic: Topic, partition: int) -> PartitionView:
        """The partition in the newest manifest: a HEAD if the cached one is the newest, otherwise a LIST and a GET."""
        return await self._view_in(await self._asked(topic.shards[partition]), topic.partition(partition))

    async def _view(self, topic: Topic, partition: int, offset: int, *, leader_known: bool) -> PartitionView:
        """A view that contains `offset` and was the newest a moment ago, or one that does not contain it."""
        shard, place = topic.shards[partition], topic.partition(partition)
        kept = self._kept.get(shard)
        fresh_s = self._fresh_s.get(place, FRESH_S_MIN)
        if kept:
            view = await self._view_in(kept, place)
            if offset < view.cold_end:
                return await self._current(shard, place)
            if self._clock.monotonic() - kept.asked_at_s < (fresh_s if leader_known else FRESH_S_MIN):
                return view
        view = await self.newest(topic, partition)
        if offset < view.cold_end:
            self._fresh_s.pop(place, None)
            return await self._current(shard, place)
        if kept:
            self._fresh_s[place] = min(2 * fresh_s, FRESH_S_MAX)
        return view

    async def _current(self, shard: int, place: TopicPartition) -> PartitionView:
        """A view that was the newest at a moment at most `READERS_TRUST_S` before this call began, or later."""
        since_s = self._clock.monotonic() - READERS_TRUST_S
        kept = self._kept.get(shard)
        while kept is None or kept.newest_at_s <= since_s:
            kept = await self._asked(shard)
        if kept.newest_at_s < since_s + READERS_TRUST_S / 2:
            self._renew_ahead(shard)
        return await self._view_in(kept, place)

    def _renew_ahead(self, shard: int) -> None:
        """For the next call, which comes before the records of this one are read."""
        if not self._flights.running(shard):
            renewing = asyncio.create_task(self._try_to_renew(shard))
            self._ahead.add(renewing)
            renewing.add_done_callback(self._ahead.discard)

    async def _try_to_renew(self, shard: int) -> None:
        try:
            await self._asked(shard)
        except TidelogError as error:
            _log.debug("cannot renew the manifest of shard %d; the next read retries: %s", shard, error)

    async def _asked(self, shard: int) -> _Kept:
        """The newest version; one request for all that ask at the same time."""
        return await self._flights.run(shard, lambda: self._ask(shard))

    async def _ask(self, shard: int) -> _Kept:
        before, asked_at_s = self._kept.get(shard), self._clock.monotonic()
        log = before.log if before else ShardLog(self._store, shard, self._runtime)
        manifest = await log.newest()
        if (now := self._kept.get(shard)) and now.log is log and now.manifest.version == manifest.version:
            manifest = now.manifest  # with the lists that were read
        kept = self._kept[shard] = _Kept(log, manifest, asked_at_s)
        return kept

    async def _view_in(self, kept: _Kept, place: TopicPartition) -> PartitionView:
        """The partition in `kept`, or in a newer version if the list of its topic was collected."""
        while lacks_list(kept.manifest, place.topic_id):
            try:
                manifest = await kept.log.with_lists(kept.manifest, (place.topic_id,))
            except Conflict:
                kept = await self._asked(kept.log.shard)
                continue
            now = self._kept.get(kept.log.shard)
            kept, replaced = replace(kept, manifest=manifest), kept
            if now is replaced:
                self._kept[kept.log.shard] = kept
        return view_of(kept.manifest, place)


def _is_in(view: PartitionView, offset: int) -> bool:
    return view.log_start_offset <= offset < view.cold_end


class _ColdPartition:
    """The `Partitions` of `PartitionReader`: provides a newer manifest when a segment is missing."""

    def __init__(self, reader: ColdReader, topic: Topic) -> None:
        self._reader = reader
        self._topic = topic

    @property
    def wal(self) -> Wal:
        raise AssertionError("the log of this partition ends at the cold end")

    async def read_list(self, _state: PartitionState) -> None:
        raise AssertionError("a view of the cold reader has its list")

    async def refresh(self, state: PartitionState) -> None:
        view = await self._reader.newest(self._topic, state.topic_partition.partition)
        if view.cold_end < state.cold_end:
            state.set_deleted()  # a cold end never moves back, so the topic has left the shard
        else:
            state.apply_cold(view)
