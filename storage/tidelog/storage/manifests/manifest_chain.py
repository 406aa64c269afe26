"""Makes the next version of a manifest, and the hash that covers a partition's whole history.

    head(v) = sha256 of (head(v - 1), partition, v, log start and ends, segments that v removed and added)

Segments are named by the sha256 of their bytes. So a `head` that was noted once can prove later that nothing of that
past was altered (`attest`). All functions are pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import msgspec

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import from_log_start
from tidelog.storage.manifests.manifest import GENESIS, Change, ChangeKind, Garbage, Manifest
from tidelog.storage.manifests.manifest_delta import shared_ends


@dataclass(frozen=True)
class Step:
    """The part of a version that is kept for ever: its change, its offsets, and the hash of the history up to it."""

    version: int
    log_start_offset: int
    cold_end: int
    clean_end: int
    change: Change
    head: str


def step_of(manifest: Manifest) -> Step:
    """The step of a version that was appended."""
    assert manifest.change is not None, "an appended version has a change"
    offsets = (manifest.log_start_offset, manifest.cold_end, manifest.clean_end)
    return Step(manifest.version, *offsets, manifest.change, manifest.head)


def grown(before: Manifest, after: Manifest, kind: ChangeKind) -> Manifest:
    """`after` as the version that follows `before`, with its change, its hash and its garbage."""
    version = before.version + 1
    first, last = shared_ends(before.segments, after.segments)
    was, came = before.segments[first : len(before.segments) - last], after.segments[first : len(after.segments) - last]
    stays, known = {segment.key for segment in came}, {segment.key for segment in was}
    left = [segment for segment in was if segment.key not in stays]
    change = Change(
        kind,
        removed=tuple(segment.sha256 for segment in left),
        added=tuple(segment.sha256 for segment in came if segment.key not in known),
    )
    made = replace(
        after,
        version=version,
        losses=from_log_start(after.losses, after.log_start_offset),
        garbage=(*after.garbage, *(Garbage(segment.key, segment.size_bytes, version) for segment in left)),
        previous_head=before.head,
        change=change,
    )
    return replace(made, head=head_after(before.head, made.topic_partition, step_of(made)))


def head_after(previous_head: str, place: TopicPartition, step: Step) -> str:
    """The hash of the history up to `step`; `step.head` itself is ignored."""
    offsets = (step.log_start_offset, step.cold_end, step.clean_end)
    change = step.change
    hashed = (
        *(previous_head, place.topic_id, place.partition, step.version, offsets),
        *(change.kind, change.removed, change.added),
    )
    return hashlib.sha256(msgspec.json.encode(hashed)).hexdigest()


def chain_fault(manifest: Manifest) -> str | None:
    """Why the `head` of `manifest` does not follow from its `previous_head` and `change`; None if it does."""
    if manifest.version < 0:
        return None if manifest.head == GENESIS else "has a head before its first version"
    if manifest.change is None:
        return "has no change"
    if manifest.version == 0 and manifest.previous_head != GENESIS:
        return "is the first version and follows another"
    if head_after(manifest.previous_head, manifest.topic_partition, step_of(manifest)) != manifest.head:
        return "does not hash to its head: its change was altered"
    return None
