"""Checks the segments of a topic in a shard: the manifest's rules, the WAL that follows, and the listed objects.

The bucket's listing and the manifest's list are walked together, both by key, one page of the listing at a time
(`listing.SegmentPage`). Workers may archive, merge, expire and collect at the same time. If an object is named and
missing, or exists and is not named, the newest manifest is read again before anything is reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tidelog.storage.bucket.finding import UNREADABLE, Finding, Looked, Report, Severity, error, unreadable, warning
from tidelog.storage.bucket.listing import SegmentPage, is_there
from tidelog.storage.bucket.segment_reading import check_segment, records_beyond, size_text
from tidelog.storage.bucket.shard_look import ShardLook, TopicLook
from tidelog.storage.bucket.verify.topic_rules import topic_faults
from tidelog.storage.bucket.verify.wal_check import TopicWal
from tidelog.storage.errors import NotFound
from tidelog.storage.in_flight import WeightedSemaphore, in_order
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectInfo, ObjectStore
from tidelog.storage.segments.topic_segment import SegmentPlace

SEGMENTS_AT_ONCE = 32


class SegmentsCheck:
    """The checks of the topic of `place`, page by page. `wal`: the topic's part of the write-ahead logs."""

    def __init__(
        self,
        store: ObjectStore,
        look: ShardLook,
        place: SegmentPlace,
        wal: TopicWal,
        report: Report,
        *,
        deep: bool,
        requests: WeightedSemaphore,
    ) -> None:
        self._store = store
        self._look = look
        self._place = place
        self._wal = wal
        self._report = report
        self._deep = deep
        self._requests = requests
        self.topic: TopicLook | None = None

    async def begin(self) -> None:
        """Read the topic's list into `topic` (None: it cannot be read), and check the rules, and the WAL that
        follows."""
        self.topic = await self._read()
        if self.topic and (state := self.topic.state):
            version = self._look.key
            for segment, text in topic_faults(state):
                await self._report(error(segment or version, f"{text}{'' if segment else self._of_topic()}"))
            for number, partition in state.all_partitions.items():
                for loss in partition.losses:
                    text = f"offsets {loss.first_offset} to {loss.next_offset - 1} of partition {number} are recorded "
                    finding = Finding(Severity.LOSS, version, f"{text}as lost; {loss.key} held them{self._of_topic()}")
                    await self._report(finding)
            for finding in self._wal_findings(state):
                await self._report(finding)

    async def check(self, page: SegmentPage) -> list[Finding]:
        """Check the objects of `page`. Returns the findings that can be judged only after the WAL was read again."""
        if self.topic is None:
            await self._report(Looked(sum(info.size for info in page.infos), len(page.infos)))
            return []
        topic, listed = self.topic, {info.key: info for info in page.infos}
        expected = topic.keys[bisect_right(topic.keys, page.after) : bisect_right(topic.keys, page.end)]
        gone = [key for key in expected if key not in listed]
        gone += await self._check_named([(each, info) for info in page.infos if (each := topic.segment(info.key))])
        unnamed = [info for info in page.infos if not topic.segment(info.key)]
        for info in unnamed:
            if info.key in topic.garbage:
                await self._report(Looked(info.size, waiting=True))
        unnamed = [info for info in unnamed if info.key not in topic.garbage]
        return await self._look_again(gone, unnamed) if gone or unnamed else []

    async def _read(self) -> TopicLook | None:
        try:
            return await self._look.topic(self._place.topic_id)
        except UNREADABLE as fault:
            harm = (
                f"the archived records of {self._place.topic} in shard {self._place.shard} cannot be found without it; "
                "restore it from a copy of the bucket, or run `tidelog bucket repair`"
            )
            await self._report(unreadable(fault, harm=harm))
            return None

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
                        await check_segment(self._store, segment)
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

    async def _look_again(self, gone: Sequence[str], unnamed: Sequence[ObjectInfo]) -> list[Finding]:
        """Report segments that are still named and missing, and objects that still nothing names; check those that
        were added meanwhile."""
        await self._look.refresh()
        found = await self._read()
        if found is None:
            return []
        came = [(segment, info) for info in unnamed if (segment := found.segment(info.key))]
        for key in gone:
            if segment := found.segment(key):
                try:
                    came.append((segment, await self._store.head(key)))
                except NotFound:
                    text = f"is missing, though a manifest names it (inv. 5){self._harm(segment)}"
                    await self._report(error(key, text, segment.size_bytes))
        await self._check_named(came)
        known = {segment.key for segment, _ in came}
        suspicious = [await self._unnamed(info, found) for info in unnamed if info.key not in known]
        return [finding for finding in suspicious if finding]

    async def _unnamed(self, info: ObjectInfo, found: TopicLook) -> Finding | None:
        """Report the object, or return a finding that is to be judged later."""
        if not await is_there(self._store, info.key):
            return None
        waiting = info.key in found.garbage
        await self._report(Looked(info.size, waiting=waiting))
        if waiting:
            return None
        orphan = Finding(Severity.ORPHAN, info.key, "is a segment that no manifest names", info.size)
        try:
            beyond = await records_beyond(self._store, info.key, found.state, self._wal.ends)
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

    def _wal_findings(self, state: TopicState) -> Iterable[Finding]:
        for number, stretch in self._wal.stretches.items():
            cold_end = state.partition(number).cold_end
            if stretch.shard == self._place.shard and stretch.base_offset > cold_end:
                where = f"has the archive of {self._place.topic}-{number} end at offset {cold_end}"
                text = f"{where}, the WAL begins at {stretch.base_offset} in {stretch.key} (inv. 5)"
                yield error(self._look.key, f"{text}: the floor passed records that no segment has")
        for number, below in self._wal.below.items():
            cold_end = state.partition(number).cold_end
            here = below.shard == self._place.shard and number not in self._wal.stretches
            if here and below.next_offset > cold_end:
                where = f"{self._place.topic}-{number}, whose archive ends at {cold_end}"
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
