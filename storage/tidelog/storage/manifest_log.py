"""The manifests of a partition as an object log: read the newest, append the next.

Entry *v* is JSON: a format version, the CRC32 of the manifest's own JSON text, and that text. Of two workers that
append version *v + 1* one wins and the other starts over from what the first made, so segments are added and removed
by one worker at a time without any lock (inv. 5).
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Annotated

import msgspec

from tidelog.storage.errors import Conflict, Corrupt, Invalid
from tidelog.storage.layout import TopicPartition, manifest_prefix
from tidelog.storage.manifest import MANIFEST_FORMAT_VERSION, Manifest, Segment
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

    async def append(self, manifest: Manifest) -> Manifest:
        """Store `manifest`, made from version ``manifest.version``, as the version after it, and return it with that.

        Raises `Conflict` if there is one already: start over from `latest`. What makes a body one's own is the ids of
        the segments it adds. Two workers that write the very same body only remove segments, and removing them once is
        what both wanted, so finding one's own body means won (as when an earlier answer was lost).
        """
        appended = replace(manifest, version=manifest.version + 1)
        body = encode_manifest(appended)
        try:
            await self._log.create(appended.version, body)
        except Conflict:
            if (await self._log.read(appended.version)).data != body:
                raise
        self._latest = appended
        return appended


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
    )
    if fault := _fault(manifest):
        raise Corrupt(key, fault)
    return manifest


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
