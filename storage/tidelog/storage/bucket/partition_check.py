"""Checks the archived side of one partition: its manifests are consistent, the objects that the newest one names exist
and are whole, and the manifest meets the content of the write-ahead log (inv. 5).

Workers may archive, merge, compact, expire and collect at the same time. If an object is named and missing, or exists
and is not named, the check reads the newest manifest again before it reports anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.storage.bucket.finding import Finding, Looked, Report, Severity, error, warning
from tidelog.storage.bucket.listing import PartitionListing, is_there
from tidelog.storage.bucket.manifest_check import check_manifests
from tidelog.storage.bucket.segment_check import check_segment
from tidelog.storage.bucket.wal_check import Stretch
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import WeightedSemaphore, in_order
from tidelog.storage.layout import parse_segment_key
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.manifests.manifest_rules import density_fault, segment_faults
from tidelog.storage.object_store import ObjectInfo, ObjectStore
from tidelog.storage.segments.segment_reader import size_fault
from tidelog.storage.upkeep.task import Place

SEGMENTS_AT_ONCE = 32
FRESH_LOOKS_MAX = 8
"""How many times the check reads the newest manifest again for segments that were added meanwhile."""


@dataclass(frozen=True)
class WalSide:
    """The offsets of the partition in the write-ahead log: `stretch` from the floor on, `below` under it."""

    stretch: Stretch | None = None
    below: Stretch | None = None


class PartitionCheck:
    """One run. It calls `reached(offset)` when everything below `offset` is checked."""

    def __init__(
        self,
        store: ObjectStore,
        place: Place,
        report: Report,
        *,
        deep: bool,
        requests: WeightedSemaphore,
        reached: Callable[[int], None],
    ) -> None:
        self._store = store
        self._place = place
        self._report = report
        self._deep = deep
        self._requests = requests
        self._reached = reached

    async def run(self, listing: PartitionListing, wal: WalSide, from_offset: int = 0) -> list[Finding]:
        """Check the listed objects of the partition and the segments that its manifest names from `from_offset` on.
        Returns the findings that can be judged only after the WAL was read again: see `beyond_end`."""
        listed = listing.segments
        async with self._requests.take(1):
            manifest = await check_manifests(self._store, self._place, self._report, deep=self._deep)
        await self._report(Looked(listing.manifest_bytes, listing.manifests))
        if manifest is None:
            await self._report(Looked(sum(info.size for info in listed.values()), len(listed)))
            return []
        await self._check_rules(manifest, wal)
        gone = await self._check_segments(manifest.segments, listed, from_offset)
        if gone:
            manifest = await self._look_again(manifest, gone)
        return await self._check_unnamed(manifest, listed, wal)

    def _log(self) -> ManifestLog:
        return ManifestLog(self._store, self._place.topic, self._place.topic_partition)

    async def _check_rules(self, manifest: Manifest, wal: WalSide) -> None:
        key, topic = self._log().key(max(manifest.version, 0)), self._place.topic
        for fault in (density_fault(manifest), meeting_fault(manifest, wal.stretch)):
            if fault:
                await self._report(error(key, fault))
        for segment, fault in segment_faults(manifest, topic):
            await self._report(error(segment.key, fault))
        for loss in manifest.losses:
            text = f"offsets {loss.first_offset} to {loss.next_offset - 1} are recorded as lost; {loss.key} held them"
            await self._report(Finding(Severity.LOSS, key, text))
        if wal.below and wal.below.next_offset > manifest.cold_end and wal.stretch is None:
            text = (
                f"lies below the floor and holds offsets up to {wal.below.next_offset - 1} of {topic}-"
                f"{self._place.topic_partition.partition}, whose manifest ends at {manifest.cold_end}: it was never "
                "committed, or the floor moved too early (inv. 6)"
            )
            await self._report(warning(wal.below.key, text))

    async def _check_segments(
        self, segments: Sequence[Segment], listed: Mapping[str, ObjectInfo], from_offset: int
    ) -> list[Segment]:
        """Returns the missing segments."""
        gone = []

        async def check(segment: Segment) -> str | None:
            info = listed.get(segment.key)
            if info is not None and (fault := size_fault(segment, info.size)):
                return fault
            try:
                async with self._requests.take(1):
                    await check_segment(self._store, segment, deep=self._deep)
            except NotFound:
                gone.append(segment)
            except Corrupt as corruption:
                return corruption.reason
            return None

        wanted = [segment for segment in segments if segment.next_offset > from_offset]
        async for segment, fault in in_order(wanted, check, at_once=SEGMENTS_AT_ONCE):
            if fault:
                await self._report(error(segment.key, fault, segment.size_bytes))
            await self._report(Looked(segment.size_bytes))
            if not gone:  # a missing segment is reported at the end: a resumed walk must find it again
                self._reached(segment.next_offset)
        return gone

    async def _look_again(self, manifest: Manifest, gone: Sequence[Segment]) -> Manifest:
        """Report segments that are still named and missing, and check those that were added meanwhile."""
        for _ in range(FRESH_LOOKS_MAX):
            known = {segment.key for segment in manifest.segments}
            manifest = await self._log().latest()
            named = {segment.key for segment in manifest.segments}
            for segment in gone:
                if segment.key in named:
                    await self._report(error(segment.key, "is missing, though a manifest names it (inv. 5)"))
            came = [segment for segment in manifest.segments if segment.key not in known]
            gone = await self._check_segments(came, {}, 0)
            if not gone:
                break
        return manifest

    async def _check_unnamed(self, manifest: Manifest, listed: Mapping[str, ObjectInfo], wal: WalSide) -> list[Finding]:
        """Check the objects beside the named segments: garbage that waits for its deletion, or orphans."""
        unnamed = listed.keys() - {segment.key for segment in manifest.segments}
        if not unnamed:
            return []
        suspicious = []
        manifest = await self._log().latest()
        named = {segment.key for segment in manifest.segments}
        garbage = {item.key for item in manifest.garbage}
        for key in sorted(unnamed - named):
            if not await is_there(self._store, key):
                continue
            await self._report(Looked(listed[key].size, waiting=key in garbage))
            if key in garbage:
                continue
            finding = orphan(listed[key])
            if finding.severity is Severity.ORPHAN and beyond_end(key, manifest, wal.stretch):
                suspicious.append(finding)
            else:
                await self._report(finding)
        return suspicious


def meeting_fault(manifest: Manifest, stretch: Stretch | None) -> str | None:
    """Why the manifest and the WAL do not form one log; None if they do (inv. 5)."""
    if stretch is None or stretch.base_offset <= manifest.cold_end:
        return None
    return f"ends at offset {manifest.cold_end}, the WAL begins at {stretch.base_offset} in {stretch.key} (inv. 5)"


def beyond_end(key: str, manifest: Manifest, stretch: Stretch | None) -> bool:
    """Whether the orphan `key` holds records beyond the end of the log. A crash leaves no such orphan, because uploaded
    records stay in the WAL until a manifest names them. So that manifest is lost, unless the WAL has grown
    meanwhile."""
    end = max(manifest.cold_end, stretch.next_offset if stretch else 0)
    return parse_segment_key(key).last_offset >= end


def orphan(info: ObjectInfo) -> Finding:
    """The finding about an object among the segments that no manifest names."""
    try:
        parse_segment_key(info.key)
    except Corrupt as fault:
        return warning(fault.name, fault.reason, info.size)
    return Finding(Severity.ORPHAN, info.key, "is a segment that no manifest names", info.size)
