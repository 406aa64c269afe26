"""The manifests of a partition as an object log: read the newest, append the next.

Entry *v* is JSON: a format version, the CRC32 of the manifest's own JSON text, and that text. Of two workers that
append version *v + 1* one wins and the other starts over from what the first made, so segments are added and removed
by one worker at a time without any lock (inv. 5).
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace
from typing import Annotated

import msgspec

from tidelog.storage.errors import Conflict, Corrupt, Invalid
from tidelog.storage.layout import TopicPartition, manifest_prefix
from tidelog.storage.manifest import MANIFEST_FORMAT_VERSION, Change, ChangeKind, Cleaning, Garbage, Manifest, Segment
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.wal_entry import ProducerMark

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Envelope(msgspec.Struct):
    format_version: int
    crc32: str = ""
    manifest: msgspec.Raw = msgspec.Raw(b"null")


class _Segment(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    base_offset: _Natural
    last_offset: _Natural
    records: _Natural
    size_bytes: _Natural
    min_timestamp_ms: int
    max_timestamp_ms: int
    sha256: str
    raw_bytes: _Natural
    level: _Natural
    archived_at_ms: _Natural = 0


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    kind: ChangeKind
    removed: list[str]
    added: list[str]


class _Garbage(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    size_bytes: _Natural
    since_version: _Natural


class _Cleaning(msgspec.Struct, forbid_unknown_fields=True):
    end_offset: _Natural
    at_ms: int


class _Mark(msgspec.Struct, forbid_unknown_fields=True):
    producer_id: str
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: _Natural


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    topic_id: str
    partition: _Natural
    version: _Natural
    log_start_offset: _Natural
    cold_end: _Natural
    segments: list[_Segment]
    producers: list[_Mark]
    clean_end: _Natural
    garbage: list[_Garbage]
    previous_head: str
    head: str
    change: _Change | None
    cleanings: list[_Cleaning] = []


_envelope_decoder = msgspec.json.Decoder(_Envelope)
_manifest_decoder = msgspec.json.Decoder(_Manifest)


class ManifestLog:
    """The manifests of `topic_partition` of `topic`. Not for two tasks at once."""

    def __init__(self, store: ObjectStore, topic: str, topic_partition: TopicPartition) -> None:
        self._log = ObjectLog(
            store, manifest_prefix(topic, topic_partition.topic_id, topic_partition.partition), ".json"
        )
        self._latest = Manifest(topic_partition)

    def key(self, version: int) -> str:
        """The name of `version`."""
        return self._log.key(version)

    async def latest(self) -> Manifest:
        """The newest version, or one of number -1 if there is none yet. One LIST (a page of 1,000 versions), and a GET
        unless that version is known from before. Raises `Corrupt`."""
        known = self._latest.version
        newest = known
        async for version in self._log.numbers(known + 1):
            newest = version
        if newest > known:
            self._latest = await self.read(newest)
        return self._latest

    async def read(self, version: int) -> Manifest:
        """One version. Raises `NotFound`, `Corrupt`."""
        stored = await self._log.read(version)
        manifest = decode_manifest(self.key(version), stored.data)
        if (manifest.topic_partition, manifest.version) != (self._latest.topic_partition, version):
            raise Corrupt(self.key(version), "is the manifest of another partition or version")
        return manifest

    async def append(self, manifest: Manifest, kind: ChangeKind = ChangeKind.ARCHIVE) -> Manifest:
        """Store `manifest`, made from version ``manifest.version`` that `latest` gave, as the version after it, and
        return it as it was stored: segments that left the list are its garbage now.

        Raises `Conflict` if there is one already: start over from `latest`. What makes a body one's own is the ids of
        the segments it adds. Two workers that write the very same body only remove segments, and removing them once is
        what both wanted, so finding one's own body means won (as when an earlier answer was lost).
        """
        assert manifest.version == self._latest.version, "a version is made from the latest one"
        appended = grown(self._latest, manifest, kind)
        body = encode_manifest(appended)
        try:
            await self._log.create(appended.version, body)
        except Conflict:
            if (await self._log.read(appended.version)).data != body:
                raise
        self._latest = appended
        return appended


def grown(before: Manifest, after: Manifest, kind: ChangeKind) -> Manifest:
    """`after` as the version that follows `before`, with what that changed, its hash and its garbage. Pure."""
    version = before.version + 1
    stays = {segment.key for segment in after.segments}
    was = {segment.key for segment in before.segments}
    left = [segment for segment in before.segments if segment.key not in stays]
    change = Change(
        kind,
        removed=tuple(segment.sha256 for segment in left),
        added=tuple(segment.sha256 for segment in after.segments if segment.key not in was),
    )
    return replace(
        after,
        version=version,
        garbage=(*after.garbage, *(Garbage(segment.key, segment.size_bytes, version) for segment in left)),
        previous_head=before.head,
        head=head_after(before.head, after, version, change),
        change=change,
    )


def head_after(previous_head: str, manifest: Manifest, version: int, change: Change) -> str:
    """The hash that stands for the history up to `version`: of the one before it and of what changed."""
    place = manifest.topic_partition
    offsets = (manifest.log_start_offset, manifest.cold_end, manifest.clean_end)
    told = (previous_head, place.topic_id, place.partition, version, offsets, change.kind, change.removed, change.added)
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()


def encode_manifest(manifest: Manifest) -> bytes:
    """Raises `Invalid` if `manifest` breaks its own rules."""
    if fault := _fault(manifest):
        raise Invalid(f"a manifest {fault}")
    document = _Manifest(
        topic_id=manifest.topic_partition.topic_id,
        partition=manifest.topic_partition.partition,
        version=manifest.version,
        log_start_offset=manifest.log_start_offset,
        cold_end=manifest.cold_end,
        segments=[msgspec.convert(segment, _Segment, from_attributes=True) for segment in manifest.segments],
        producers=[msgspec.convert(mark, _Mark, from_attributes=True) for mark in manifest.producers],
        clean_end=manifest.clean_end,
        garbage=[msgspec.convert(garbage, _Garbage, from_attributes=True) for garbage in manifest.garbage],
        previous_head=manifest.previous_head,
        head=manifest.head,
        change=msgspec.convert(manifest.change, _Change | None, from_attributes=True),
        cleanings=[msgspec.convert(cleaning, _Cleaning, from_attributes=True) for cleaning in manifest.cleanings],
    )
    text = msgspec.json.encode(document)
    return msgspec.json.encode(_Envelope(MANIFEST_FORMAT_VERSION, f"{zlib.crc32(text):08x}", msgspec.Raw(text)))


def decode_manifest(key: str, data: bytes) -> Manifest:
    """Raises `Corrupt` naming `key`."""
    try:
        envelope = _envelope_decoder.decode(data)
        if envelope.format_version != MANIFEST_FORMAT_VERSION:
            raise Corrupt(key, f"is of format version {envelope.format_version}; known is {MANIFEST_FORMAT_VERSION}")
        if envelope.crc32 != f"{zlib.crc32(envelope.manifest):08x}":
            raise Corrupt(key, "does not have its checksum")
        document = _manifest_decoder.decode(envelope.manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(key, f"is not a manifest: {error}") from error
    topic_partition = TopicPartition(document.topic_id, document.partition)
    manifest = Manifest(
        topic_partition=topic_partition,
        version=document.version,
        log_start_offset=document.log_start_offset,
        cold_end=document.cold_end,
        segments=tuple(Segment(**msgspec.structs.asdict(segment)) for segment in document.segments),
        producers=tuple(ProducerMark(topic_partition, **msgspec.structs.asdict(mark)) for mark in document.producers),
        clean_end=document.clean_end,
        garbage=tuple(Garbage(**msgspec.structs.asdict(garbage)) for garbage in document.garbage),
        previous_head=document.previous_head,
        head=document.head,
        change=_change(document.change),
        cleanings=tuple(Cleaning(**msgspec.structs.asdict(cleaning)) for cleaning in document.cleanings),
    )
    if fault := _fault(manifest):
        raise Corrupt(key, fault)
    return manifest


def _change(change: _Change | None) -> Change | None:
    return Change(change.kind, tuple(change.removed), tuple(change.added)) if change else None


def _fault(manifest: Manifest) -> str | None:
    """What is wrong with the offsets of `manifest`; None if nothing is."""
    reached = 0
    for segment in manifest.segments:
        if not reached <= segment.base_offset <= segment.last_offset:
            return f"has a segment {segment.base_offset} to {segment.last_offset} after offset {reached} (inv. 5)"
        reached = segment.next_offset
    if reached > manifest.cold_end or not 0 <= manifest.log_start_offset <= manifest.cold_end:
        return f"ends at {manifest.cold_end}, begins at {manifest.log_start_offset}, and has segments up to {reached}"
    if any(mark.topic_partition != manifest.topic_partition for mark in manifest.producers):
        return "carries the producers of another partition"
    return None
