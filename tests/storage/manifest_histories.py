"""Generated partitions with long lists and long histories: segments without objects, versions of every kind."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.storage.record_tables import WEB

from tidelog.storage.layout import TopicPartition, segment_key
from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_codec import decode_version
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore

TOPIC = "web"
RECORDS = 1_000


def decode_manifest(key: str, data: bytes) -> Manifest:
    """A version that is stored whole."""
    version = decode_version(key, data)
    assert isinstance(version, Manifest), "a difference"
    return version


def a_segment(number: int, place: TopicPartition = WEB, *, count: int = 1, salt: str = "") -> Segment:
    """The segment with the records of `count` of the smallest segments, from number `number` on."""
    digest = hashlib.sha256(f"{number} {count} {salt}".encode()).hexdigest()
    base, last = number * RECORDS, (number + count) * RECORDS - 1
    key = segment_key(TOPIC, place.topic_id, place.partition, base, last, digest[:32])
    size_bytes, at_ms = 100_000_000 + number, 1_700_000_000_000 + number * 60_000
    return Segment(key, base, last, count * RECORDS, size_bytes, at_ms, at_ms + 59_999, digest, 10 * size_bytes)


def a_list(count: int, place: TopicPartition = WEB) -> tuple[Segment, ...]:
    return tuple(a_segment(number, place) for number in range(count))


def archived(manifest: Manifest, number: int) -> Manifest:
    """`manifest` with one more segment at its end."""
    segment = a_segment(number, manifest.topic_partition)
    return replace(manifest, segments=(*manifest.segments, segment), cold_end=segment.next_offset)


@dataclass
class History:
    """Appends versions to `log` like workers, from a seed."""

    log: ManifestLog
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._number = 0
        self.versions: list[Manifest] = []

    async def run(self, versions: int, kinds: Sequence[ChangeKind] = ()) -> Manifest:
        for _ in range(versions):
            kind = self._random.choice(kinds or (ChangeKind.ARCHIVE,) * 4 + (ChangeKind.MERGE, ChangeKind.EXPIRE))
            await self.step(kind)
        return self.versions[-1]

    async def step(self, kind: ChangeKind) -> Manifest:
        manifest = await self.log.latest()
        if kind is ChangeKind.EXPIRE and manifest.segments:
            begins = manifest.segments[0].next_offset
            after = replace(manifest, segments=manifest.segments[1:], log_start_offset=begins)
        elif kind is ChangeKind.MERGE and len(manifest.segments) > 2:
            after = self._merged(manifest)
        else:
            kind, after = ChangeKind.ARCHIVE, archived(manifest, manifest.cold_end // RECORDS)
        self.versions.append(await self.log.append(after, kind))
        return self.versions[-1]

    def _merged(self, manifest: Manifest) -> Manifest:
        place = self._random.randrange(len(manifest.segments) - 1)
        one, two = manifest.segments[place : place + 2]
        count = (two.next_offset - one.base_offset) // RECORDS
        large = a_segment(one.base_offset // RECORDS, manifest.topic_partition, count=count, salt="merged")
        segments = (*manifest.segments[:place], replace(large, level=1), *manifest.segments[place + 2 :])
        return replace(manifest, segments=segments)


def history_of(store: ObjectStore, seed: int = 0, place: TopicPartition = WEB) -> History:
    return History(ManifestLog(store, TOPIC, place), seed)
