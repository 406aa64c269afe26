"""Checks the segments of a topic in a shard: the manifest's rules, the WAL that follows, and the listed objects.

The bucket's listing and the manifest's list are walked together, both by key, one page of the listing at a time
(`listing.SegmentPage`). Workers may archive, merge, expire and collect at the same time. If an object is named and
missing, or exists and is not named, the newest manifest is read again before anything is reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.storage.bucket.finding import UNREADABLE, Finding, Looked, Report, Severity, error, unreadable, warning
from tidelog.storage.bucket.listing import SegmentPage, TopicFolder, is_there
from tidelog.storage.bucket.segment_check import check_segment, read_footer, size_text
from tidelog.storage.bucket.shard_look import ShardLook, list_harm
from tidelog.storage.bucket.topic_rules import topic_faults
from tidelog.storage.bucket.wal_check import Stretch, WalContent
from tidelog.storage.errors import NotFound
from tidelog.storage.in_flight import WeightedSemaphore, in_order
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import EMPTY, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectInfo, ObjectStore
from tidelog.storage.segments.topic_segment import SegmentPlace, decode_place

SEGMENTS_AT_ONCE = 32


@dataclass(frozen=True)
class TopicLook:
    """The topic in the version that was read: its state (None if the version does not have it), and the keys of its
    segments, ascending. `garbage`: objects of the shard that wait for their deletion."""

    state: TopicState | None
    keys: Sequence[str]
    garbage: frozenset[str]

    def named(self, key: str) -> TopicSegment | None:
        return self.state.segments.named(key) if self.state else None

    def expected(self, page: SegmentPage) -> Sequence[str]:
        """The keys that the page of the listing must have."""
        return self.keys[bisect_right(self.keys, page.after) : bisect_right(self.keys, page.end)]


class SegmentsCheck:
    """The checks of one topic in one shard, page by page."""

    def __init__(
        self,
        store: ObjectStore,
        look: ShardLook,
        folder: TopicFolder,
        report: Report,
        *,
        deep: bool,
        requests: WeightedSemaphore,
    ) -> None:
        self._store = store
        self._look = look
        self._place = SegmentPlace(folder.name.topic, folder.name.topic_id, folder.shard)
        self._report = report
        self._deep = deep
        self._requests = requests

    async def begin(self, wal: WalContent) -> TopicLook | None:
        """Read the topic's list, and check the rules, and the WAL that follows (`wal`: the topic's part of the logs).
        Returns None if there is no list to compare objects with."""
        found = await self._read()
        if found and found.state:
            version = self._look.key
            for segment, text in topic_faults(found.state):
                await self._report(error(segment or version, f"{text}{'' if segment else self._of_topic()}"))
            for number, state in found.state.all_partitions.items():
                for loss in state.losses:
                    text = f"offsets {loss.first_offset} to {loss.next_offset - 1} of partition {number} are recorded "
                    finding = Finding(Severity.LOSS, version, f"{text}as lost; {loss.key} held them{self._of_topic()}")
                    await self._report(finding)
            for finding in self._wal_findings(found.state, wal):
                await self._report(finding)
        return found

    async def check(self, page: SegmentPage, found: TopicLook | None, wal: WalContent) -> list[Finding]:
        """Check the objects of `page`. Returns the findings that can be judged only after the WAL was read again."""
        if found is None:
            await self._report(Looked(sum(info.size for info in page.infos), len(page.infos)))
            return []
        listed = {info.key: info for info in page.infos}
        gone = [key for key in found.expected(page) if key not in listed]
        segments = [(segment, info) for info in page.infos if (segment := found.named(info.key))]
        gone += await self._check_named(segments)
        unnamed = [info for info in page.infos if not found.named(info.key)]
        for info in unnamed:
            if info.key in found.garbage:
                await self._report(Looked(info.size, waiting=True))
        unnamed = [info for info in unnamed if info.key not in found.garbage]
        return await self._look_again(gone, unnamed, wal) if gone or unnamed else []

    async def _read(self) -> TopicLook | None:
        try:
            state = await self._look.topic(self._place.topic_id)
        except UNREADABLE as fault:
            await self._report(list_harm(fault, self._place.topic, self._place.shard))
            return None
        manifest = self._look.manifest
        if manifest is None:
            return None
        keys = sorted(state.segments.columns.keys) if state else ()
        return TopicLook(state, keys, garbage_of(manifest, self._place.topic_id))

    async def _check_named(self, segments: Iterable[tuple[TopicSegment, ObjectInfo]]) -> list[str]:
        """Returns the keys of those that are missing now."""
        gone = []

        async def check(item: tuple[TopicSegment, ObjectInfo]) -> Finding | None:
            segment, info = item
            if info.size != segment.size_bytes:
                return error(segment.key, size_text(segment, info.size) + self._harm(segment), segment.size_bytes)
            try:
                if self._deep:
                    async with self._requests.take(1):
                        await check_segment(self._store, segment, self._place)
            except UNREADABLE as fault:
                return unreadable(fault, segment.size_bytes, harm=self._harm(segment).removeprefix(": "))
            except NotFound:
                gone.append(segment.key)
            return None

        async for (segment, _), finding in in_order(segments, check, at_once=SEGMENTS_AT_ONCE):
            if finding:
                await self._report(finding)
            await self._report(Looked(segment.size_bytes))
        return gone

    async def _look_again(self, gone: Sequence[str], unnamed: Sequence[ObjectInfo], wal: WalContent) -> list[Finding]:
        """Report segments that are still named and missing, and objects that still nothing names; check those that
        were added meanwhile."""
        await self._look.refresh()
        found = await self._read()
        if found is None:
            return []
        came = [(segment, info) for info in unnamed if (segment := found.named(info.key))]
        for key in gone:
            if segment := found.named(key):
                try:
                    came.append((segment, await self._store.head(key)))
                except NotFound:
                    text = f"is missing, though a manifest names it (inv. 5){self._harm(segment)}"
                    await self._report(error(key, text, segment.size_bytes))
        await self._check_named(came)
        known = {segment.key for segment, _ in came}
        suspicious = [await self._unnamed(info, found, wal) for info in unnamed if info.key not in known]
        return [finding for finding in suspicious if finding]

    async def _unnamed(self, info: ObjectInfo, found: TopicLook, wal: WalContent) -> Finding | None:
        """Report the object, or return a finding that is to be judged later."""
        if not await is_there(self._store, info.key):
            return None
        waiting = info.key in found.garbage
        await self._report(Looked(info.size, waiting=waiting))
        if waiting:
            return None
        orphan = Finding(Severity.ORPHAN, info.key, "is a segment that no manifest names", info.size)
        try:
            beyond = await records_beyond(self._store, info.key, found.state, wal.stretches)
        except UNREADABLE as fault:
            text = f"is a segment that no manifest names, and cannot be read: {fault}"
            await self._report(warning(info.key, text, info.size))
            return None
        except NotFound:
            return None
        if beyond:
            return orphan
        await self._report(orphan)
        return None

    def _wal_findings(self, state: TopicState, wal: WalContent) -> Iterable[Finding]:
        of_shard = [(place, found) for place, found in wal.stretches.items() if found.shard == self._place.shard]
        for place, stretch in of_shard:
            cold_end = state.partition(place.partition).cold_end
            if stretch.base_offset > cold_end:
                where = f"has the archive of {self._place.topic}-{place.partition} end at offset {cold_end}"
                text = f"{where}, the WAL begins at {stretch.base_offset} in {stretch.key} (inv. 5)"
                yield error(self._look.key, f"{text}: the floor passed records that no segment has")
        for place, below in wal.below.items():
            cold_end = state.partition(place.partition).cold_end
            if below.shard == self._place.shard and below.next_offset > cold_end and place not in wal.stretches:
                where = f"{self._place.topic}-{place.partition}, whose archive ends at {cold_end}"
                text = f"lies below the floor and holds offsets up to {below.next_offset - 1} of {where}"
                yield warning(below.key, f"{text}: it was never committed, or the floor moved too early (inv. 6)")

    def _of_topic(self) -> str:
        return f", of topic {self._place.topic} in shard {self._place.shard}"

    def _harm(self, segment: TopicSegment) -> str:
        """What is lost with the segment, and what to do."""
        spans = segment.spans
        first = f"partition {spans[0].partition} from offset {spans[0].base_offset} to {spans[0].last_offset}"
        more = f" and {len(spans) - 1} more partitions" if len(spans) > 1 else ""
        return (
            f": it holds {first}{more}{self._of_topic()}; restore it from a copy of the bucket, or run "
            "`tidelog bucket repair`"
        )


def garbage_of(manifest: ShardManifest, topic_id: str) -> frozenset[str]:
    """The segments of the topic that wait for their deletion."""
    part = f"/{topic_id}/"
    return frozenset(each.key for each in manifest.garbage if part in each.key)


async def records_beyond(
    store: ObjectStore, key: str, state: TopicState | None, stretches: Mapping[TopicPartition, Stretch]
) -> bool:
    """Whether the segment `key` holds records beyond the end of a partition. A crash leaves no such orphan, because
    uploaded records stay in the WAL until a manifest names them. So that manifest is lost, unless the WAL has grown
    meanwhile. Raises `Corrupt`, `NewerFormat`, `NotFound`."""
    place, spans = decode_place(key, await read_footer(store, key))
    for number, _, last_offset, _ in spans:
        stretch = stretches.get(TopicPartition(place.topic_id, number))
        cold_end = (state.partition(number) if state else EMPTY).cold_end
        if last_offset >= max(cold_end, stretch.next_offset if stretch else 0):
            return True
    return False
