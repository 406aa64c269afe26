"""The manifest of a shard: one version of the list of all that is archived of the shard's write-ahead log.

A version is the newest entry of an object log. It has the floor, the topics with their segments and partitions, and the
objects that left the lists. One append publishes a whole pass of the archiver, a merge, or an expiry, for all
partitions of the shard together (ADR 0030).

`ManifestChange` says what a worker wants to change. `applied` makes the next version of it; it is pure, and refuses a
change that does not fit the version, so that a worker that lost a race can try the same change on the newer version.

A version also has a hash over its predecessor's hash and its own change:

    digest(topic)  = sha256 of (topic id, kind, the removed and added segments' sha256, the new offsets of partitions)
    head(v)        = sha256 of (head(v - 1), shard, v, kind, floor, the digests of all topics that changed)

So a `head` that was noted once proves later that nothing of the past was altered (`tidelog bucket attest`). The history
of one topic can be proved with the digests of the others, without their data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tidelog.storage.manifests.losses import from_log_start
from tidelog.storage.manifests.segment_list import DoesNotApply
from tidelog.storage.manifests.shard_values import (
    ChangeKind,
    ColdState,
    Garbage,
    TopicSegment,
)
from tidelog.storage.manifests.topic_state import ListRef, TopicState
from tidelog.storage.wal.floor import BEGINNING, Floor

GENESIS = "0" * 64
"""The `head` before the first version."""


@dataclass(frozen=True)
class TopicChange:
    """What a version changes in a topic. `removed`: keys of segments. `partitions`: the new states of those that
    change. `name` is needed for a topic that the shard does not have yet."""

    name: str
    removed: tuple[str, ...] = ()
    added: tuple[TopicSegment, ...] = ()
    partitions: Mapping[int, ColdState] = field(default_factory=dict)


@dataclass(frozen=True)
class ManifestChange:
    """What a worker wants to change, by topic id. `floor`: where the log begins from now on; None leaves it.
    `dropped`: topics that leave the shard with all their segments. `collected`: keys of garbage that was deleted."""

    kind: ChangeKind
    topics: Mapping[str, TopicChange] = field(default_factory=dict)
    floor: Floor | None = None
    dropped: tuple[str, ...] = ()
    collected: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Recorded:
    """The part of a change that is kept for ever: its kind, and the digest of each topic that it changed."""

    kind: ChangeKind
    digests: Mapping[str, str]


@dataclass(frozen=True)
class ShardManifest:
    """One version. `version` is -1 for a shard that has none yet. `writer`: the id of the `ShardLog` that appended it,
    so that no two of them write the same bytes. `change`: what made it, None if it was read."""

    shard: int
    version: int = -1
    floor: Floor = BEGINNING
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    garbage: tuple[Garbage, ...] = ()
    previous_head: str = GENESIS
    head: str = GENESIS
    recorded: Recorded | None = None
    writer: str = ""
    change: ManifestChange | None = field(default=None, compare=False, repr=False)


def applied(before: ShardManifest, change: ManifestChange) -> ShardManifest:
    """The version after `before`, with `change`. The lists of the topics that it changes were read. Raises
    `DoesNotApply` if it removes a segment that is not listed, or moves the floor or a partition backwards."""
    version = before.version + 1
    topics, garbage = dict(before.topics), [each for each in before.garbage if each.key not in change.collected]
    digests: dict[str, str] = {}
    for topic_id, wanted in change.topics.items():
        was = before.topics.get(topic_id) or TopicState(wanted.name)
        left = [found for key in wanted.removed if (found := was.segments.named(key))]
        topics[topic_id] = _changed(was, wanted, left)
        garbage += [Garbage(each.key, each.size_bytes, version) for each in left]
        digests[topic_id] = _digest(topic_id, change.kind, left, wanted)
    for topic_id in change.dropped:
        was = topics.pop(topic_id)
        left = list(was.segments)
        objects: list[TopicSegment | ListRef] = [*left, *([was.stored] if was.stored else [])]
        garbage += [Garbage(each.key, each.size_bytes, version) for each in objects]
        digests[topic_id] = _digest(topic_id, change.kind, left, TopicChange(was.name))
    recorded = Recorded(change.kind, digests)
    made = replace(
        before,
        version=version,
        floor=_moved(before.floor, change.floor),
        topics=topics,
        garbage=tuple(garbage),
        previous_head=before.head,
        recorded=recorded,
        change=change,
    )
    return replace(made, head=head_of(made))


def head_of(manifest: ShardManifest) -> str:
    """The hash of the history up to `manifest`; its own `head` is ignored."""
    recorded = manifest.recorded
    assert recorded is not None, "an appended version has a change"
    floor = (manifest.floor.number, manifest.floor.epoch)
    hashed = (
        *(manifest.previous_head, manifest.shard, manifest.version),
        *(recorded.kind, floor, sorted(recorded.digests.items())),
    )
    return hashlib.sha256(msgspec.json.encode(hashed)).hexdigest()


def _changed(was: TopicState, wanted: TopicChange, left: Sequence[TopicSegment]) -> TopicState:
    for number, state in wanted.partitions.items():
        before = was.partition(number)
        if state.log_start_offset < before.log_start_offset or state.cold_end < before.cold_end:
            raise DoesNotApply(f"partition {number} would move back from {before.cold_end} to {state.cold_end}")
    segments = was.segments.changed(wanted.removed, wanted.added)
    last_run = max((segment.run for segment in wanted.added), default=-1)
    states = {number: _trimmed(state) for number, state in wanted.partitions.items()}
    return replace(
        was.with_segments(segments),
        next_run=max(was.next_run, last_run + 1),
        partitions={**was.partitions, **states},
        totals=was.totals.after(left, wanted.added),
    )


def _trimmed(state: ColdState) -> ColdState:
    return replace(state, losses=from_log_start(state.losses, state.log_start_offset))


def _moved(before: Floor, wanted: Floor | None) -> Floor:
    if wanted is None:
        return before
    if wanted.number < before.number:
        raise DoesNotApply(f"the floor is {before.number} already, beyond {wanted.number}")
    return Floor(wanted.number, max(before.epoch, wanted.epoch))


def _digest(topic_id: str, kind: ChangeKind, left: Iterable[TopicSegment], wanted: TopicChange) -> str:
    states = sorted(wanted.partitions.items())
    offsets = [(number, state.log_start_offset, state.cold_end, state.clean_end) for number, state in states]
    removed, added = ([segment.sha256 for segment in segments] for segments in (left, wanted.added))
    return hashlib.sha256(msgspec.json.encode((topic_id, kind, removed, added, offsets))).hexdigest()
