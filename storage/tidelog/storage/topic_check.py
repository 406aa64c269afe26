"""Checks the segments and manifests of one topic: what the newest manifests name is there, whole and in order, and
meets what the write-ahead logs hold (inv. 5). Segments that no manifest names are orphans.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.finding import Finding, Severity
from tidelog.storage.layout import TopicPartition, parse_segment_key
from tidelog.storage.manifest import Manifest, Segment
from tidelog.storage.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectInfo, ObjectStore
from tidelog.storage.segment_codec import describe_segment
from tidelog.storage.wal_check import Stretch

_TOPIC = re.compile(
    r"topics/(?P<topic>[^/]+)/(?P<topic_id>[^/]+)/"
    r"(?:_manifest/(?P<manifest_of>\d{5})/\d{20}\.json|partition=(?P<partition>\d+)/.+)"
)


@dataclass(frozen=True)
class TopicName:
    """A topic by name and id: what its objects lie under."""

    topic: str
    topic_id: str


def topic_of(key: str) -> TopicName | None:
    """The topic whose object `key` is; None for one that is no topic's."""
    found = _TOPIC.fullmatch(key)
    return TopicName(found["topic"], found["topic_id"]) if found else None


class TopicCheck:
    """One run over the objects of a topic, which `infos` lists."""

    def __init__(self, store: ObjectStore, name: TopicName, infos: Sequence[ObjectInfo], *, deep: bool) -> None:
        self._store = store
        self._name = name
        self._infos = infos
        self._deep = deep

    async def findings(self, stretches: Mapping[int, Stretch]) -> AsyncIterator[Finding | ObjectInfo]:
        """What is wrong, and between that each object once it is looked at. `stretches` is what the WALs hold of the
        topic, by partition."""
        listed: defaultdict[int, dict[str, ObjectInfo]] = defaultdict(dict)
        for info in self._infos:
            found = _TOPIC.fullmatch(info.key)
            assert found is not None
            segments = listed[int(found["manifest_of"] or found["partition"])]
            if found["partition"]:
                segments[info.key] = info
            else:
                yield info
        for partition in sorted(listed.keys() | stretches.keys()):
            place = TopicPartition(self._name.topic_id, partition)
            async for finding in self._partition_findings(place, listed[partition], stretches.get(partition)):
                yield finding

    async def _partition_findings(
        self, place: TopicPartition, listed: Mapping[str, ObjectInfo], stretch: Stretch | None
    ) -> AsyncIterator[Finding | ObjectInfo]:
        log = ManifestLog(self._store, self._name.topic, place)
        try:
            manifest = await log.latest()
        except Corrupt as error:
            yield Finding(Severity.ERROR, error.name, error.reason)
            return
        if text := meeting_fault(manifest, stretch):
            yield Finding(Severity.ERROR, log.key(max(manifest.version, 0)), text)
        for segment in manifest.segments:
            if finding := await self._segment_finding(segment, listed.get(segment.key)):
                yield finding
        named = {segment.key for segment in manifest.segments}
        for key, info in listed.items():
            if key not in named:
                yield orphan(info)
            yield info

    async def _segment_finding(self, segment: Segment, info: ObjectInfo | None) -> Finding | None:
        try:
            info = info or await self._store.head(segment.key)
            if info.size != segment.size_bytes:
                text = f"has {info.size} bytes, its manifest says {segment.size_bytes}"
                return Finding(Severity.ERROR, segment.key, text, info.size)
            if self._deep:
                data = (await self._store.get(segment.key)).data
                said = describe_segment(segment.key, data)
                if replace(said, level=segment.level, archived_at_ms=segment.archived_at_ms) != segment:
                    return Finding(Severity.ERROR, segment.key, "is not what its manifest says of it", info.size)
        except NotFound:
            return Finding(Severity.ERROR, segment.key, "is missing, though a manifest names it (inv. 5)")
        except Corrupt as error:
            return Finding(Severity.ERROR, error.name, error.reason)
        return None


def meeting_fault(manifest: Manifest, stretch: Stretch | None) -> str | None:
    """Why the manifest and what the WAL holds do not make one log; None if they do (inv. 5)."""
    if stretch is None or stretch.base_offset <= manifest.cold_end:
        return None
    return f"ends at offset {manifest.cold_end}, the WAL begins at {stretch.base_offset} in {stretch.key} (inv. 5)"


def orphan(info: ObjectInfo) -> Finding:
    """What to say of a segment that no manifest names."""
    try:
        parse_segment_key(info.key)
    except Corrupt as error:
        return Finding(Severity.WARNING, error.name, error.reason, info.size)
    return Finding(Severity.ORPHAN, info.key, "is a segment that no manifest names", info.size)
