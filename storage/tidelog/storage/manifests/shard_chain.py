"""The chain of hashes over the history of a shard: what each version changed, and the hash up to there.

    digest(topic)  = sha256 of (topic id, kind, the removed and added segments' sha256, the new offsets of partitions)
    head(v)        = sha256 of (head(v - 1), shard, v, kind, floor, the digests of all topics that changed)

Segments are named by the sha256 of their bytes. So a head that was noted once proves later that nothing of the past was
altered (`tidelog bucket attest`). The steps of one topic, replayed from version 0 on, give the segments that the newest
version must list; for the other topics their digests are enough. All functions are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from tidelog.storage.manifests.json_envelope import Natural
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.wal.floor import Floor

GENESIS = "0" * 64
"""The head before the first version."""


class TopicStep(msgspec.Struct, frozen=True, array_like=True):
    """What a version changed in a topic. `removed`, `added`: the sha256 of segments. `offsets`: of each partition whose
    state changed, its number, log start, cold end and clean end."""

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    offsets: tuple[tuple[Natural, Natural, Natural, Natural], ...] = ()


class Recorded(msgspec.Struct, frozen=True):
    """The part of a change that is kept for ever: its kind, and the step of each topic that it changed, by id."""

    kind: ChangeKind
    topics: Mapping[str, TopicStep] = {}


class Step(msgspec.Struct, frozen=True, array_like=True):
    """The part of a version that is kept for ever. `floor`: after it. `head`: the hash of the history up to it."""

    version: Natural
    floor: Floor
    recorded: Recorded
    head: str


def digest_of(topic_id: str, kind: ChangeKind, step: TopicStep) -> str:
    """The hash of what a version changed in a topic."""
    hashed = (topic_id, kind, step.removed, step.added, step.offsets)
    return hashlib.sha256(msgspec.json.encode(hashed)).hexdigest()


def head_after(previous_head: str, shard: int, step: Step) -> str:
    """The hash of the history up to `step`; `step.head` itself is ignored."""
    kind, topics = step.recorded.kind, step.recorded.topics
    digests = sorted((topic_id, digest_of(topic_id, kind, topic)) for topic_id, topic in topics.items())
    hashed = (previous_head, shard, step.version, kind, (step.floor.number, step.floor.epoch), digests)
    return hashlib.sha256(msgspec.json.encode(hashed)).hexdigest()
