"""Reads the state of a bucket for a repair (`repair_plan`), and changes nothing.

A broker may run at the same time, because write-ahead logs are read first and manifests second: records that are
archived in between are in the manifests read later (inv. 5). Every entry from the floor on is read whole. Segments are
listed or, in a `deep` survey, read whole. Spare segments are read only where they may be needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.storage.bucket.known_topics import KnownTopic
from tidelog.storage.bucket.repair_plan import LogView, LostWalEntry, PartitionView
from tidelog.storage.bucket.segment_check import check_segment
from tidelog.storage.bucket.wal_check import read_header
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import TopicPartition, floor_key, parse_segment_key, segment_prefix
from tidelog.storage.manifests.losses import past_losses
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.segments.segment_codec import describe_segment
from tidelog.storage.segments.segment_reader import size_fault
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import WalHeader
from tidelog.storage.wal.wal_index import WalIndex

ENTRIES_AT_ONCE = 4
SEGMENTS_AT_ONCE = 8
LOST_MAX = 100_000
"""If a log lacks more entries than this, the survey concludes that its floor is lost."""

IS_MISSING = "is missing"


class RepairSurvey:
    """A survey of the bucket `store`."""

    def __init__(self, store: ObjectStore, *, deep: bool) -> None:
        self._store = store
        self._deep = deep

    async def log(self, shard: int) -> LogView:
        """Raises `Unavailable`, and `Corrupt` if the floor is damaged or missing."""
        wal = Wal(self._store, shard, ParquetWalCodec())
        floor = await wal.floor()
        headers: dict[int, WalHeader] = {}
        lost: dict[int, str] = {}
        numbers = [number async for number in wal.log.numbers(floor.number)]
        _check_begins(wal, floor.version, numbers)
        reading = in_order(numbers, lambda seq: read_header(wal, seq, whole=True), at_once=ENTRIES_AT_ONCE)
        async for seq, found in reading:
            if isinstance(found, WalHeader):
                headers[seq] = found
            else:
                lost[seq] = found.reason if isinstance(found, Corrupt) else IS_MISSING
        there = set(numbers)
        lost |= {seq: IS_MISSING for seq in range(floor.number, max(there, default=0)) if seq not in there}
        begin = (await wal.floor()).number
        lost = {seq: reason for seq, reason in lost.items() if seq >= begin}
        known = await self._known_headers(wal, headers, lost)
        entries = {seq: LostWalEntry(wal.key(seq), reason, known.get(seq)) for seq, reason in sorted(lost.items())}
        return LogView(shard, begin, {seq: header for seq, header in headers.items() if seq >= begin}, entries)

    async def _known_headers(
        self, wal: Wal, headers: Mapping[int, WalHeader], lost: Mapping[int, str]
    ) -> Mapping[int, WalHeader]:
        """The headers of lost entries: from the index, unless it contradicts the log, or from the entry's own footer,
        if only its records are damaged."""
        if not lost:
            return {}
        index = {entry.header.seq: entry.header for entry in await WalIndex(self._store, wal.shard).read(min(lost))}
        if any(seq in headers and headers[seq].entry_id != header.entry_id for seq, header in index.items()):
            index = {}
        found = {seq: header for seq, header in index.items() if seq in lost}
        for seq in lost.keys() - found.keys():
            header = await read_header(wal, seq, whole=False)
            if isinstance(header, WalHeader):
                found[seq] = header
        return found

    async def partition(self, topic: KnownTopic, number: int, log: LogView) -> PartitionView | None:
        """None if the partition has manifests and none can be read. Raises `Unavailable`."""
        place = TopicPartition(topic.topic_id, number)
        manifests = ManifestLog(self._store, topic.name, place)
        versions = [version async for version in manifests.versions()]
        manifest, fault = await self._newest(manifests, versions)
        if manifest is None:
            return None
        prefix = segment_prefix(topic.name, topic.topic_id, number)
        listed = {info.key: info async for info in list_all(self._store, prefix)}
        missing = await self._missing(manifest, listed)
        spans = log.spans().get(place)
        cold_end = past_losses(manifest.losses, manifest.cold_end)
        wanted = fault or missing or (spans and spans[0][1].base_offset > cold_end)
        newest = max(versions, default=0)
        return PartitionView(
            topic.name,
            manifest,
            newest_key=manifests.key(newest),
            newest_version=max(manifest.version, newest) if versions else -1,
            fault=fault,
            missing=missing,
            spare=await self._spare(manifest, listed) if wanted else (),
        )

    async def _newest(self, manifests: ManifestLog, versions: Sequence[int]) -> tuple[Manifest | None, str | None]:
        """The newest readable version, and why the newest of all cannot be read."""
        if not versions:
            return await manifests.latest(), None
        fault: str | None = None
        for version in reversed(versions):
            try:
                return await manifests.read(version), fault
            except Corrupt as error:
                fault = fault or error.reason
            except NotFound:
                fault = fault or IS_MISSING
        return None, fault

    async def _missing(self, manifest: Manifest, listed: Mapping[str, ObjectInfo]) -> Mapping[str, str]:
        """The segments of the manifest that are lost, and why."""
        missing: dict[str, str] = {}
        async for segment, reason in in_order(
            manifest.segments, lambda segment: self._fault_of(segment, listed), at_once=SEGMENTS_AT_ONCE
        ):
            if reason:
                missing[segment.key] = reason
        return missing

    async def _fault_of(self, segment: Segment, listed: Mapping[str, ObjectInfo]) -> str | None:
        info = listed.get(segment.key)
        if info is None:
            return IS_MISSING
        if (fault := size_fault(segment, info.size)) or not self._deep:
            return fault
        try:
            await check_segment(self._store, segment, deep=True)
        except Corrupt as error:
            return error.reason
        except NotFound:
            return IS_MISSING
        return None

    async def _spare(self, manifest: Manifest, listed: Mapping[str, ObjectInfo]) -> Sequence[Segment]:
        """The sound segments of the partition that the manifest does not list."""
        named = {segment.key for segment in manifest.segments}
        spare = []
        for key in listed.keys() - named:
            try:
                parse_segment_key(key)
                spare.append(describe_segment(key, (await self._store.get(key)).data))
            except (Corrupt, NotFound):
                continue
        return spare


def _check_begins(wal: Wal, floor_version: str | None, numbers: Sequence[int]) -> None:
    if floor_version is None and numbers and numbers[0] > 0:
        raise Corrupt(floor_key(wal.shard), f"is missing: the log begins with entry {numbers[0]}")
    if numbers and numbers[-1] - numbers[0] - len(numbers) > LOST_MAX:
        raise Corrupt(wal.key(numbers[0]), f"is followed by a log that lacks more than {LOST_MAX} entries")
