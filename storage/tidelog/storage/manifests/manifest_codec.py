"""The stored form of a manifest version: whole, or as the difference to an older whole version.

A list of up to `WHOLE_SEGMENTS_MAX` segments and garbage objects is stored whole. A longer version names its
``base_version`` and up to `DIFFERENCES_MAX` differences to it. After that a whole version follows, the base of the next
ones. So an append costs about the same however long the list is, and opening a partition takes two objects. Both forms
have the producers, which the archiver's settings bound. A base has at least half of `WHOLE_SEGMENTS_MAX`, so that most
versions are known to be no base (`manifest_log` relies on it).

A difference also has the `head` of its base, so that it cannot be applied to another version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.json_envelope import seal, unseal
from tidelog.storage.manifests.losses import Loss, losses_fault
from tidelog.storage.manifests.manifest import (
    MANIFEST_FORMAT,
    Change,
    ChangeKind,
    Cleaning,
    Garbage,
    Manifest,
    Segment,
)
from tidelog.storage.manifests.manifest_delta import (
    DoesNotApply,
    ListDifference,
    ManifestDifference,
    applied,
    difference,
)
from tidelog.storage.wal.wal_entry import ProducerMark

WHOLE_SEGMENTS_MAX = 512
DIFFERENCES_MAX = 512

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


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


class _Loss(msgspec.Struct, forbid_unknown_fields=True):
    first_offset: _Natural
    next_offset: _Natural
    key: str
    at_ms: int


class _Mark(msgspec.Struct, forbid_unknown_fields=True):
    producer_id: str
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: _Natural


class _Segments(msgspec.Struct, forbid_unknown_fields=True):
    removed: list[_Natural]
    added: list[_Segment]


class _Garbages(msgspec.Struct, forbid_unknown_fields=True):
    removed: list[str]
    added: list[_Garbage]


class _Marks(msgspec.Struct, forbid_unknown_fields=True):
    removed: list[str]
    added: list[_Mark]


class _Version(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="stored"):
    topic_id: str
    partition: _Natural
    version: _Natural
    log_start_offset: _Natural
    cold_end: _Natural
    clean_end: _Natural
    cleanings: list[_Cleaning]
    previous_head: str
    head: str
    change: _Change | None
    losses: list[_Loss] = []


class _Whole(_Version, forbid_unknown_fields=True, kw_only=True, tag="whole"):
    segments: list[_Segment]
    garbage: list[_Garbage]
    producers: list[_Mark]


class _Difference(_Version, forbid_unknown_fields=True, kw_only=True, tag="difference"):
    base_version: _Natural
    base_head: str
    segments: _Segments
    garbage: _Garbages
    producers: _Marks


_decoder = msgspec.json.Decoder(_Whole | _Difference)


@dataclass(frozen=True)
class StoredDifference:
    """A version that needs its base: `manifest` has everything except the lists."""

    manifest: Manifest
    base_head: str
    difference: ManifestDifference


def stored_part(stored: Manifest | StoredDifference) -> Manifest:
    """The part of a version that is in its own object: everything except the lists, if it is a difference."""
    return stored.manifest if isinstance(stored, StoredDifference) else stored


def encode_manifest(manifest: Manifest) -> bytes:
    """`manifest` stored whole. Raises `Invalid` if it breaks its own rules."""
    lists = {
        "segments": manifest.segments,
        "garbage": manifest.garbage,
        "producers": _wire_marks(manifest.producers),
    }
    return _encode(manifest, {"stored": "whole", **_common_fields(manifest), **lists})


def encode_difference(manifest: Manifest, base: Manifest, made: ManifestDifference) -> bytes:
    """`manifest`, which is `base` with `made`. Raises `Invalid` if it breaks its own rules."""
    lists = {
        "segments": {"removed": made.segments.removed, "added": made.segments.added},
        "garbage": {"removed": made.garbage.removed, "added": made.garbage.added},
        "producers": {"removed": made.producers.removed, "added": _wire_marks(made.producers.added)},
    }
    based_on = {"base_version": base.version, "base_head": base.head}
    return _encode(manifest, {"stored": "difference", **_common_fields(manifest), **based_on, **lists})


def encode_version(manifest: Manifest, base: Manifest | None) -> tuple[Manifest, bytes]:
    """`manifest` and its stored form, whole or as a difference to `base`, the newest whole version."""
    made = short_difference(manifest, base)
    if base is None or made is None:
        whole = replace(manifest, base_version=None)
        return whole, encode_manifest(whole)
    based = replace(manifest, base_version=base.version)
    return based, encode_difference(based, base, made)


def may_be_base(manifest: Manifest) -> bool:
    """Whether a later version may be stored as the difference to `manifest`."""
    return manifest.base_version is None and len(manifest.segments) + len(manifest.garbage) >= WHOLE_SEGMENTS_MAX // 2


def short_difference(manifest: Manifest, base: Manifest | None) -> ManifestDifference | None:
    """The difference of `manifest` to `base`; None if it is to be stored whole."""
    if base is None or not may_be_base(base) or len(manifest.segments) + len(manifest.garbage) <= WHOLE_SEGMENTS_MAX:
        return None
    made = difference(base, manifest)
    if len(made.segments) + len(made.garbage) > DIFFERENCES_MAX:
        return None
    same = applied(base, made) == (manifest.segments, manifest.garbage, manifest.producers)
    return made if same else None


def decode_version(key: str, data: bytes) -> Manifest | StoredDifference:
    """A version, or the part of it in its own object. Raises `Corrupt` naming `key`."""
    try:
        document = _decoder.decode(unseal(key, data, MANIFEST_FORMAT))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(key, f"is not a manifest: {error}") from error
    if isinstance(document, _Difference):
        made = ManifestDifference(
            ListDifference(tuple(document.segments.removed), _segments(document.segments.added)),
            ListDifference(tuple(document.garbage.removed), _garbage(document.garbage.added)),
            ListDifference(tuple(document.producers.removed), _marks(_place(document), document.producers.added)),
        )
        return StoredDifference(_manifest(document), document.base_head, made)
    manifest = replace(
        _manifest(document),
        segments=_segments(document.segments),
        garbage=_garbage(document.garbage),
        producers=_marks(_place(document), document.producers),
    )
    return _checked(key, manifest)


def put_on(key: str, stored: StoredDifference, base: Manifest) -> Manifest:
    """The version that `key` stores as a difference to `base`. Raises `Corrupt` naming `key`."""
    if base.base_version is not None or base.head != stored.base_head:
        raise Corrupt(key, f"is a difference to another version {base.version} than the stored one")
    try:
        segments, garbage, producers = applied(base, stored.difference)
    except DoesNotApply as error:
        raise Corrupt(key, f"removes items that version {base.version} does not have") from error
    return _checked(key, replace(stored.manifest, segments=segments, garbage=garbage, producers=producers))


def _encode(manifest: Manifest, document: dict[str, Any]) -> bytes:
    if fault := _fault(manifest):
        raise Invalid(f"a manifest {fault}")
    return seal(MANIFEST_FORMAT, msgspec.json.encode(document))


def _common_fields(manifest: Manifest) -> dict[str, Any]:
    """The fields of both forms, except the lists, by their stored names."""
    fields: dict[str, Any] = {
        "topic_id": manifest.topic_partition.topic_id,
        "partition": manifest.topic_partition.partition,
        "version": manifest.version,
        "log_start_offset": manifest.log_start_offset,
        "cold_end": manifest.cold_end,
        "clean_end": manifest.clean_end,
        "cleanings": manifest.cleanings,
        "previous_head": manifest.previous_head,
        "head": manifest.head,
        "change": manifest.change,
    }
    return {**fields, "losses": manifest.losses} if manifest.losses else fields


def _wire_marks(marks: Sequence[ProducerMark]) -> list[_Mark]:
    return msgspec.convert(marks, list[_Mark], from_attributes=True)


def _manifest(document: _Whole | _Difference) -> Manifest:
    """The version without its lists."""
    return Manifest(
        topic_partition=_place(document),
        version=document.version,
        log_start_offset=document.log_start_offset,
        cold_end=document.cold_end,
        clean_end=document.clean_end,
        cleanings=msgspec.convert(document.cleanings, tuple[Cleaning, ...], from_attributes=True),
        previous_head=document.previous_head,
        losses=msgspec.convert(document.losses, tuple[Loss, ...], from_attributes=True),
        head=document.head,
        change=msgspec.convert(document.change, Change | None, from_attributes=True),
        base_version=document.base_version if isinstance(document, _Difference) else None,
    )


def _place(document: _Whole | _Difference) -> TopicPartition:
    return TopicPartition(document.topic_id, document.partition)


def _segments(segments: list[_Segment]) -> tuple[Segment, ...]:
    return msgspec.convert(segments, tuple[Segment, ...], from_attributes=True)


def _garbage(garbage: list[_Garbage]) -> tuple[Garbage, ...]:
    return msgspec.convert(garbage, tuple[Garbage, ...], from_attributes=True)


def _marks(place: TopicPartition, marks: list[_Mark]) -> tuple[ProducerMark, ...]:
    return tuple(ProducerMark(place, **msgspec.structs.asdict(mark)) for mark in marks)


def _checked(key: str, manifest: Manifest) -> Manifest:
    if fault := _fault(manifest):
        raise Corrupt(key, fault)
    return manifest


def _fault(manifest: Manifest) -> str | None:
    """Why `manifest` contradicts itself; None if it does not."""
    reached = 0
    for segment in manifest.segments:
        if not reached <= segment.base_offset <= segment.last_offset:
            return f"has a segment {segment.base_offset} to {segment.last_offset} after offset {reached} (inv. 5)"
        reached = segment.next_offset
    if reached > manifest.cold_end or not 0 <= manifest.log_start_offset <= manifest.cold_end:
        return f"ends at {manifest.cold_end}, begins at {manifest.log_start_offset}, and has segments up to {reached}"
    if fault := losses_fault(manifest.losses):
        return fault
    if any(garbage.since_version > manifest.version for garbage in manifest.garbage):
        return "names garbage of a later version"
    if any(mark.topic_partition != manifest.topic_partition for mark in manifest.producers):
        return "has producers of another partition"
    return None
