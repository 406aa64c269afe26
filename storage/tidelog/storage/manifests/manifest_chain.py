"""How a version of a manifest follows from the one before it, and the hash that stands for a partition's whole history.

    head(v) = sha256 of (head(v - 1), whose partition, v, where the log begins and ends, what v removed and added)

What came and left is named by the sha256 of the segments' bytes, so whoever wrote `head` down once can have it shown
later that nothing of that past was altered (`attest`). All of it is pure.
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
    """What the chain keeps of version `version`, for ever: its change, its offsets, and the hash of all up to it."""

    version: int
    log_start_offset: int
    cold_end: int
    clean_end: int
    change: Change
    head: str


def step_of(manifest: Manifest) -> Step:
    """Of a version that was appended."""
    assert manifest.change is not None, "a version says what it changed"
    offsets = (manifest.log_start_offset, manifest.cold_end, manifest.clean_end)
    return Step(manifest.version, *offsets, manifest.change, manifest.head)


def grown(before: Manifest, after: Manifest, kind: ChangeKind) -> Manifest:
    """`after` as the version that follows `before`, with what that changed, its hash and its garbage."""
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
    """The hash that stands for the history up to `step`, whose own `head` is not looked at."""
    offsets = (step.log_start_offset, step.cold_end, step.clean_end)
    change = step.change
    told = (
        *(previous_head, place.topic_id, place.partition, step.version, offsets),
        *(change.kind, change.removed, change.added),
    )
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()


def chain_fault(manifest: Manifest) -> str | None:
    """Why the `head` of `manifest` does not follow from its `previous_head` and `change`; None if it does."""
    if manifest.version < 0:
        return None if manifest.head == GENESIS else "has a head before its first version"
    if manifest.change is None:
        return "does not say what it changed"
    if manifest.version == 0 and manifest.previous_head != GENESIS:
        return "is the first version and follows another"
    if head_after(manifest.previous_head, manifest.topic_partition, step_of(manifest)) != manifest.head:
        return "does not hash to its head: what it says it changed is not what was written"
    return None
