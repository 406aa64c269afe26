"""Checks one partition's cold side: its manifests hold together, what the newest one names is there and whole, and it
meets what the write-ahead log holds (inv. 5).

Safe beside workers that archive, merge, compact, expire and collect meanwhile. What looks wrong, an object named and
not there, or there and not named, is looked at again with the newest manifest before it is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.storage.bucket.finding import Finding, Looked, Seen, Severity
from tidelog.storage.bucket.manifest_check import ManifestCheck
from tidelog.storage.bucket.segment_check import check_segment
from tidelog.storage.bucket.topic_listing import PartitionListing
from tidelog.storage.bucket.wal_check import Stretch
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import Room, in_order
from tidelog.storage.layout import TopicPartition, parse_segment_key
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.manifests.manifest_rules import density_fault, segment_faults
from tidelog.storage.object_store import ObjectInfo, ObjectStore

SEGMENTS_AT_ONCE = 32
FRESH_LOOKS_MAX = 8
"""How often segments that came while the partition was looked at are looked at too."""

Tell = Callable[[Seen], Awaitable[None]]


@dataclass(frozen=True)
class WalSide:
    """What the write-ahead log holds of the partition: from the floor on, and below it still."""

    stretch: Stretch | None = None
    below: Stretch | None = None


class PartitionCheck:
    """One run. `tell` hears what is found, and of each object once it is looked at. `reached(offset)` hears that all
    below `offset` is looked at."""

    def __init__(
        self,
        store: ObjectStore,
        topic: str,
        place: TopicPartition,
        tell: Tell,
        *,
        deep: bool,
        requests: Room,
        reached: Callable[[int], None],
    ) -> None:
        self._store = store
        self._topic = topic
        self._place = place
        self._tell = tell
        self._deep = deep
        self._requests = requests
        self._reached = reached

    async def run(self, listing: PartitionListing, wal: WalSide, from_offset: int = 0) -> list[Finding]:
        """Check what is listed of the partition and what its manifests name, of that from `from_offset` on. Returns
        what can only be told once the write-ahead log was read again: see `beyond_end`."""
        listed = listing.segments
        async with self._requests.take(1):
            manifest = await self._manifest()
        await self._tell(Looked(listing.manifest_bytes, listing.manifests))
        if manifest is None:
            await self._tell(Looked(sum(info.size for info in listed.values()), len(listed)))
            return []
        await self._check_rules(manifest, wal)
        gone = await self._check_segments(manifest.segments, listed, from_offset)
        if gone:
            manifest = await self._look_again(manifest, gone)
        return await self._strangers(manifest, listed, wal)

    # ---- manifests

    async def _manifest(self) -> Manifest | None:
        """The newest one; None if it cannot be read, which is told."""
        check = ManifestCheck(self._store, self._topic, self._place, deep=self._deep)
        async for seen in check.findings():
            await self._tell(seen)
        return check.latest

    async def _fresh(self) -> Manifest:
        return await ManifestLog(self._store, self._topic, self._place).latest()

    def _key(self, manifest: Manifest) -> str:
        return ManifestLog(self._store, self._topic, self._place).key(max(manifest.version, 0))

    async def _check_rules(self, manifest: Manifest, wal: WalSide) -> None:
        key = self._key(manifest)
        for fault in (density_fault(manifest), meeting_fault(manifest, wal.stretch)):
            if fault:
                await self._error(key, fault)
        for segment, fault in segment_faults(manifest, self._topic):
            await self._error(segment.key, fault)
        for loss in manifest.losses:
            text = f"offsets {loss.first_offset} to {loss.next_offset - 1} are recorded as lost; {loss.key} held them"
            await self._tell(Finding(Severity.LOSS, key, text))
        if wal.below and wal.below.next_offset > manifest.cold_end and wal.stretch is None:
            text = (
                f"lies below the floor and holds offsets up to {wal.below.next_offset - 1} of {self._topic}-"
                f"{self._place.partition}, whose manifest ends at {manifest.cold_end}: it was never committed, or the "
                "floor moved too early (inv. 6)"
            )
            await self._tell(Finding(Severity.WARNING, wal.below.key, text))

    # ---- segments

    async def _check_segments(
        self, segments: Sequence[Segment], listed: Mapping[str, ObjectInfo], from_offset: int
    ) -> list[Segment]:
        """Those that are not there."""
        gone = []

        async def check(segment: Segment) -> str | None:
            info = listed.get(segment.key)
            if info is not None and info.size != segment.size_bytes:
                return f"has {info.size} bytes, its manifest says {segment.size_bytes}"
            try:
                async with self._requests.take(1):
                    await check_segment(self._store, segment, deep=self._deep)
            except NotFound:
                gone.append(segment)
            except Corrupt as error:
                return error.reason
            return None

        wanted = [segment for segment in segments if segment.next_offset > from_offset]
        async for segment, fault in in_order(wanted, check, at_once=SEGMENTS_AT_ONCE):
            if fault:
                await self._error(segment.key, fault, segment.size_bytes)
            await self._tell(Looked(segment.size_bytes))
            if not gone:  # what is missing is told at the end: a walk that goes on has to meet it again
                self._reached(segment.next_offset)
        return gone

    async def _look_again(self, manifest: Manifest, gone: Sequence[Segment]) -> Manifest:
        """Tell of what is missing still, and check what came instead of what was taken out of the list meanwhile."""
        for _ in range(FRESH_LOOKS_MAX):
            known = {segment.key for segment in manifest.segments}
            manifest = await self._fresh()
            named = {segment.key for segment in manifest.segments}
            for segment in gone:
                if segment.key in named:
                    await self._error(segment.key, "is missing, though a manifest names it (inv. 5)")
            came = [segment for segment in manifest.segments if segment.key not in known]
            gone = await self._check_segments(came, {}, 0)
            if not gone:
                break
        return manifest

    async def _strangers(self, manifest: Manifest, listed: Mapping[str, ObjectInfo], wal: WalSide) -> list[Finding]:
        """Objects that lie beside the segments: garbage that waits, or orphans."""
        named = {segment.key for segment in manifest.segments}
        unnamed = [info for key, info in listed.items() if key not in named]
        suspicious = []
        if unnamed:
            manifest = await self._fresh()
            named = {segment.key for segment in manifest.segments}
            garbage = {item.key for item in manifest.garbage}
            for info in unnamed:
                if info.key in named or not await self._is_there(info.key):
                    continue
                await self._tell(Looked(info.size, waiting=info.key in garbage))
                if info.key not in garbage:
                    finding = orphan(info)
                    if finding.severity is Severity.ORPHAN and beyond_end(info.key, manifest, wal.stretch):
                        suspicious.append(finding)
                    else:
                        await self._tell(finding)
        return suspicious

    async def _is_there(self, key: str) -> bool:
        """Whether an object that was listed is there still: it may have been collected, and its name forgotten."""
        try:
            await self._store.head(key)
        except NotFound:
            return False
        return True

    async def _error(self, key: str, text: str, size_bytes: int = 0) -> None:
        await self._tell(Finding(Severity.ERROR, key, text, size_bytes))


def meeting_fault(manifest: Manifest, stretch: Stretch | None) -> str | None:
    """Why the manifest and what the WAL holds do not make one log; None if they do (inv. 5)."""
    if stretch is None or stretch.base_offset <= manifest.cold_end:
        return None
    return f"ends at offset {manifest.cold_end}, the WAL begins at {stretch.base_offset} in {stretch.key} (inv. 5)"


def beyond_end(key: str, manifest: Manifest, stretch: Stretch | None) -> bool:
    """Whether the orphan `key` holds records beyond the log's end. A crash leaves no such orphan, since what is
    uploaded is in the WAL until a manifest has it: that manifest is lost, unless the WAL has grown meanwhile."""
    end = max(manifest.cold_end, stretch.next_offset if stretch else 0)
    return parse_segment_key(key).last_offset >= end


def orphan(info: ObjectInfo) -> Finding:
    """What to say of a segment that no manifest names."""
    try:
        parse_segment_key(info.key)
    except Corrupt as error:
        return Finding(Severity.WARNING, error.name, error.reason, info.size)
    return Finding(Severity.ORPHAN, info.key, "is a segment that no manifest names", info.size)
