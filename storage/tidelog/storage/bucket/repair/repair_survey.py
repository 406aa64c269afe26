"""Reads the state of a shard for a repair (`repair_plan`), and changes nothing.

A broker may run at the same time, because the write-ahead log is read first and the manifest second: records that are
archived in between are in the manifest read later (inv. 5). Every entry from the floor on is read whole. Segments are
listed or, in a `deep` survey, read whole. Spare segments are read only where they may be needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog.storage.bucket.finding import UNREADABLE, Unreadable
from tidelog.storage.bucket.known_topics import KnownTopic
from tidelog.storage.bucket.repair.repair_plan import LogView, LostWalEntry, ShardView, TopicView, gaps
from tidelog.storage.bucket.segment_reading import check_segment, described, size_text
from tidelog.storage.bucket.shard_look import read_header
from tidelog.storage.errors import Conflict, Corrupt, NewerFormat, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import manifests_prefix, shard_segment_name, shard_segment_prefix
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import WalHeader
from tidelog.storage.wal.wal_index import WalIndex

ENTRIES_AT_ONCE = 4
SEGMENTS_AT_ONCE = 8
LOST_MAX = 100_000
"""If a log lacks more entries than this, the survey concludes that its floor is lost."""

VERSIONS_MAX = 1_000
"""The newest versions among which a readable one is looked for."""

IS_MISSING = "is missing"


class ShardSurvey:
    """A survey of `shard`, whose partitions are those of `topics`."""

    def __init__(
        self, store: ObjectStore, shard: int, topics: Sequence[KnownTopic], runtime: Runtime, *, deep: bool
    ) -> None:
        self._store = store
        self._shard = shard
        self._topics = topics
        self._deep = deep
        self._log = ShardLog(store, shard, runtime)
        self._wal = Wal(store, shard, ParquetWalCodec(), self._log)

    async def run(self) -> ShardView:
        """Raises `Unavailable`; `Corrupt` if no version of the manifest can be read; `NewerFormat` if a later program
        wrote one, or an entry."""
        versions: deque[int] = deque(maxlen=VERSIONS_MAX)
        async for version in self._log.versions():
            versions.append(version)
        manifest, fault = await self._newest(versions)
        log = await self._read_log(manifest, fault)
        if fault is None:
            manifest = await self._log.latest()
            log = log.beginning_at(manifest.floor.number)
        newest = max((manifest.version, *versions))
        return await self._with_topics(ShardView(log, manifest, self._log.key(max(newest, 0)), newest, fault))

    async def _newest(self, versions: Sequence[int]) -> tuple[ShardManifest, str | None]:
        """The newest readable version, and why the newest of all cannot be read."""
        fault: str | None = None
        for version in reversed(versions):
            try:
                return await self._log.read(version), fault
            except Corrupt as error:
                fault = fault or error.reason
            except NotFound:
                fault = fault or IS_MISSING
        if versions:
            raise Corrupt(self._log.key(versions[-1]), f"{fault}, and there is no version before it that can be read")
        return ShardManifest(self._shard), None

    async def _read_log(self, manifest: ShardManifest, fault: str | None) -> LogView:
        floor = manifest.floor.number
        numbers = [number async for number in self._wal.log.numbers(floor)]
        self._check_begins(manifest, numbers)
        headers: dict[int, WalHeader] = {}
        lost = dict.fromkeys(set(range(floor, max(numbers, default=0))).difference(numbers), IS_MISSING)
        reading = in_order(numbers, lambda seq: read_header(self._wal, seq, whole=True), at_once=ENTRIES_AT_ONCE)
        async for seq, found in reading:
            if isinstance(found, WalHeader):
                headers[seq] = found
            elif isinstance(found, NewerFormat):
                raise found  # it is not lost
            else:
                lost[seq] = found.reason if isinstance(found, Corrupt) else IS_MISSING
        if fault is not None:  # then the floor may have been beyond all entries that are left
            indexed = (entry.header.seq for entry in await WalIndex(self._store, self._shard).read(floor))
            lost |= {seq: IS_MISSING for seq in indexed if seq not in headers and seq not in lost}
        known = await self._known_headers(headers, lost)
        entries = {seq: LostWalEntry(self._wal.key(seq), reason, known.get(seq)) for seq, reason in lost.items()}
        return LogView(self._shard, floor, headers, dict(sorted(entries.items())))

    def _check_begins(self, manifest: ShardManifest, numbers: Sequence[int]) -> None:
        if manifest.version < 0 and numbers and numbers[0] > 0:
            raise Corrupt(
                manifests_prefix(self._shard), f"has no version, although the log begins with entry {numbers[0]}"
            )
        if numbers and numbers[-1] + 1 - manifest.floor.number - len(numbers) > LOST_MAX:
            raise Corrupt(self._wal.key(manifest.floor.number), f"begins a log that lacks more than {LOST_MAX} entries")

    async def _known_headers(
        self, headers: Mapping[int, WalHeader], lost: Mapping[int, str]
    ) -> Mapping[int, WalHeader]:
        """The headers of lost entries: from the index, unless it contradicts the log, or from the entry's own footer,
        if only its records are damaged."""
        if not lost:
            return {}
        index = {entry.header.seq: entry.header for entry in await WalIndex(self._store, self._shard).read(min(lost))}
        if any(seq in headers and headers[seq].entry_id != header.entry_id for seq, header in index.items()):
            index = {}
        found = {seq: header for seq, header in index.items() if seq in lost}
        for seq in lost.keys() - found.keys():
            header = await read_header(self._wal, seq, whole=False)
            if isinstance(header, WalHeader):
                found[seq] = header
        return found

    async def _with_topics(self, view: ShardView) -> ShardView:
        topics: list[TopicView] = []
        unreadable: dict[str, Unreadable] = {}
        for topic in self._topics:
            try:
                read = (await self._log.with_lists(view.manifest, [topic.topic_id])).topics.get(topic.topic_id)
                topics.append(await self._topic(topic.topic_id, read or TopicState(topic.name), view))
            except UNREADABLE as fault:
                unreadable[topic.topic_id] = fault
            except Conflict as conflict:
                unreadable[topic.topic_id] = Corrupt(view.newest_key, str(conflict))
        return replace(view, topics=topics, unreadable=unreadable)

    async def _topic(self, topic_id: str, state: TopicState, view: ShardView) -> TopicView:
        place = SegmentPlace(state.name, topic_id, self._shard)
        prefix = shard_segment_prefix(state.name, topic_id, self._shard)
        listed = {info.key: info async for info in list_all(self._store, prefix) if shard_segment_name(info.key)}
        missing = await self._missing(state, listed)
        found = TopicView(topic_id, state, missing)
        if view.fault is None and not missing and not gaps(view, found):
            return found
        spare = [await described(self._store, place, info) for key, info in listed.items() if key not in state.segments]
        return replace(found, spare=[segment for segment in spare if segment])

    async def _missing(self, state: TopicState, listed: Mapping[str, ObjectInfo]) -> Mapping[str, str]:
        """The segments of a topic's list that are lost, and why."""
        missing: dict[str, str] = {}
        async for segment, reason in in_order(
            state.segments, lambda segment: self._fault_of(segment, listed), at_once=SEGMENTS_AT_ONCE
        ):
            if reason:
                missing[segment.key] = reason
        return missing

    async def _fault_of(self, segment: TopicSegment, listed: Mapping[str, ObjectInfo]) -> str | None:
        info = listed.get(segment.key)
        if info is None:
            return IS_MISSING
        if info.size != segment.size_bytes:
            return size_text(segment, info.size)
        if not self._deep:
            return None
        try:
            await check_segment(self._store, segment)
        except NotFound:
            return IS_MISSING
        except Corrupt as fault:
            return fault.reason
        return None
