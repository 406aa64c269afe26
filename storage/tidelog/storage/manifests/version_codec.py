"""The stored form of a version of a shard's manifest: for each topic, the differences to its list.

    manifests/0003/00000000000000000017.json       JSON with a checksum (`json_envelope`)

A topic of a few segments has no list; then all of them are differences, and one object holds everything. A version
names the hash and the size of each list, so that a list cannot be exchanged.
"""

from __future__ import annotations

import msgspec

from tidelog.storage.errors import Corrupt
from tidelog.storage.formats import MANIFEST
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.json_envelope import Natural, seal, unseal
from tidelog.storage.manifests.shard_chain import GENESIS, Recorded
from tidelog.storage.manifests.shard_manifest import ShardManifest, head_of
from tidelog.storage.manifests.shard_values import Garbage
from tidelog.storage.manifests.stored_values import (
    StoredSegment,
    StoredState,
    segment_of,
    state_of,
    stored_segment,
    stored_state,
)
from tidelog.storage.manifests.topic_state import NO_BASE, ListRef, TopicState, Totals
from tidelog.storage.wal.floor import Floor


class _Topic(msgspec.Struct, omit_defaults=True):
    name: str
    next_run: Natural
    stored: ListRef | None = None
    removed: list[Natural] = []
    added: list[StoredSegment] = []
    partitions: dict[int, StoredState] = {}
    totals: Totals = Totals()


class _Version(msgspec.Struct):
    shard: Natural
    version: Natural
    floor: Natural
    floor_epoch: Natural
    previous_head: str
    head: str
    change: Recorded
    topics: dict[str, _Topic]
    garbage: tuple[Garbage, ...]
    writer: str


_decoder = msgspec.json.Decoder(_Version)


def encode_version(manifest: ShardManifest) -> bytes:
    """The object of `manifest`, a version that `applied` made."""
    recorded = manifest.recorded
    assert recorded is not None, "a stored version has a change"
    document = _Version(
        shard=manifest.shard,
        version=manifest.version,
        floor=manifest.floor.number,
        floor_epoch=manifest.floor.epoch,
        previous_head=manifest.previous_head,
        head=manifest.head,
        change=recorded,
        topics={topic_id: _stored_topic(topic) for topic_id, topic in sorted(manifest.topics.items())},
        garbage=manifest.garbage,
        writer=manifest.writer,
    )
    return seal(MANIFEST, msgspec.json.encode(document))


def decode_version(key: str, data: bytes) -> ShardManifest:
    """The version in the object `key`, without its lists. Raises `Corrupt`."""
    try:
        found = _decoder.decode(unseal(key, data, MANIFEST))
        topics = {topic_id: _topic(topic_id, topic, found.shard) for topic_id, topic in found.topics.items()}
    except msgspec.DecodeError as error:
        raise Corrupt(key, f"is no version of a manifest: {error}") from error
    manifest = ShardManifest(
        shard=found.shard,
        version=found.version,
        floor=Floor(found.floor, found.floor_epoch),
        topics=topics,
        garbage=found.garbage,
        previous_head=found.previous_head,
        head=found.head,
        recorded=found.change,
        writer=found.writer,
    )
    if found.version == 0 and found.previous_head != GENESIS:
        raise Corrupt(key, "is the first version and follows another")
    if head_of(manifest) != found.head:
        raise Corrupt(key, "does not hash to its head: its change was altered")
    return manifest


def _stored_topic(topic: TopicState) -> _Topic:
    return _Topic(
        name=topic.name,
        next_run=topic.next_run,
        stored=topic.stored,
        removed=sorted(topic.removed),
        added=[stored_segment(segment) for segment in topic.added],
        partitions={number: stored_state(state) for number, state in sorted(topic.partitions.items())},
        totals=topic.totals,
    )


def _topic(topic_id: str, found: _Topic, shard: int) -> TopicState:
    return TopicState(
        name=found.name,
        next_run=found.next_run,
        stored=found.stored,
        base=None if found.stored else NO_BASE,
        removed=frozenset(found.removed),
        added=tuple(segment_of(segment, found.name, topic_id, shard) for segment in found.added),
        partitions={
            number: state_of(state, TopicPartition(topic_id, number)) for number, state in found.partitions.items()
        },
        totals=found.totals,
    )
