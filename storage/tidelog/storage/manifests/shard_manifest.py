"""The manifest of a shard: one version of the list of all that is archived of the shard's write-ahead log.

A version is the newest entry of an object log. It has the floor, the topics with their segments and partitions, and the
objects that left the lists. One append publishes a whole pass of the archiver, a merge, or an expiry, for all
partitions of the shard together (ADR 0030).

`ManifestChange` says what a worker wants to change. `applied` makes the next version of it; it is pure, and refuses a
change that does not fit the version, so that a worker that lost a race can try the same change on the newer version.

A version also has a hash over the whole history of the shard (`shard_chain`). It is stored as it is, but without the
content of lists:

    manifests/0003/00000000000000000017.json       JSON with a checksum (`json_envelope`)

A topic of a few segments has no list; then all of them are differences, and one object holds everything. A version
names the hash and the size of each list, so that a list cannot be exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import astuple, replace

from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.formats import MANIFEST
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.json_envelope import Natural, SealedJson
from tidelog.storage.manifests.losses import from_log_start
from tidelog.storage.manifests.segment_list import DoesNotApply
from tidelog.storage.manifests.shard_chain import GENESIS, Recorded, Step, TopicStep, head_after
from tidelog.storage.manifests.shard_values import EMPTY, ChangeKind, ColdState, Garbage, TopicSegment
from tidelog.storage.manifests.topic_state import ListRef, TopicState
from tidelog.storage.wal.floor import BEGINNING, Floor


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


class ShardManifest(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """One version. `version` is -1 for a shard that has none yet. `writer`: the id of the `ShardLog` that appended it,
    so that no two of them write the same bytes. `change`: what made it, which is not stored or compared: None if it was
    read."""

    shard: Natural
    version: int = -1
    floor: Floor = BEGINNING
    topics: Mapping[str, TopicState] = {}
    garbage: tuple[Garbage, ...] = ()
    previous_head: str = GENESIS
    head: str = GENESIS
    recorded: Recorded | None = None
    writer: str = ""
    change: ManifestChange | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardManifest) and astuple(self)[:-1] == astuple(other)[:-1]

    def state(self, place: TopicPartition) -> ColdState:
        """The state of a partition, whose topic's list was read."""
        topic = self.topics.get(place.topic_id)
        return topic.partition(place.partition) if topic else EMPTY


_form = SealedJson(ShardManifest, MANIFEST, "is no version of a manifest")


def applied(before: ShardManifest, change: ManifestChange, at_ms: int = 0) -> ShardManifest:
    """The version after `before`, with `change`, appended at `at_ms`. The lists of the topics that it changes were
    read. Raises `DoesNotApply` if it removes a segment that is not listed, or moves the floor or a partition backwards;
    `Invalid` if no version could make it fit."""
    version = before.version + 1
    topics, steps = dict(before.topics), dict[str, TopicStep]()
    gone: list[TopicSegment | ListRef] = []
    for topic_id, wanted in change.topics.items():
        was = before.topics.get(topic_id) or TopicState(wanted.name)
        left = [found for key in wanted.removed if (found := was.segments.named(key))]
        topics[topic_id] = _changed(was, wanted, left)
        steps[topic_id] = _step(left, wanted)
        gone += left
    for topic_id in change.dropped:
        was = topics.pop(topic_id)
        left = list(was.segments)
        steps[topic_id] = _step(left, TopicChange(was.name))
        gone += [*left, *([was.stored] if was.stored else [])]
    garbage = [each for each in before.garbage if each.key not in change.collected]
    garbage += [Garbage(each.key, each.size_bytes, version, at_ms) for each in gone]
    made = replace(
        before,
        version=version,
        floor=_moved(before.floor, change.floor),
        topics=topics,
        garbage=tuple(garbage),
        previous_head=before.head,
        recorded=Recorded(change.kind, steps),
        change=change,
    )
    return replace(made, head=head_of(made))


def encode_version(manifest: ShardManifest) -> bytes:
    """The object of `manifest`, a version that `applied` made."""
    topics = {topic_id: replace(topic, base=None) for topic_id, topic in manifest.topics.items()}
    return _form.encode(replace(manifest, topics=topics, change=None))


def decode_version(key: str, data: bytes) -> ShardManifest:
    """The version in the object `key`, without its lists. Raises `Corrupt`."""
    found = _form.decode(key, data)
    for fault in filter(None, (topic.added.fault() for topic in found.topics.values())):
        raise Corrupt(key, fault)
    if found.recorded is None:
        raise Corrupt(key, "is no version of a manifest: it does not say what it changed")
    if found.version == 0 and found.previous_head != GENESIS:
        raise Corrupt(key, "is the first version and follows another")
    if head_of(found) != found.head:
        raise Corrupt(key, "does not hash to its head: its change was altered")
    return found


def step_of(manifest: ShardManifest) -> Step:
    """The step of a version that was appended."""
    assert manifest.recorded is not None, "an appended version has a change"
    return Step(manifest.version, manifest.floor, manifest.recorded, manifest.head)


def head_of(manifest: ShardManifest) -> str:
    """The hash of the history up to `manifest`; its own `head` is ignored."""
    return head_after(manifest.previous_head, manifest.shard, step_of(manifest))


def _changed(was: TopicState, wanted: TopicChange, left: Sequence[TopicSegment]) -> TopicState:
    for number, state in wanted.partitions.items():
        before = was.partition(number)
        if state.log_start_offset < before.log_start_offset or state.cold_end < before.cold_end:
            raise DoesNotApply(f"partition {number} would move back from {before.cold_end} to {state.cold_end}")
        if state.log_start_offset > state.cold_end:
            raise Invalid(f"partition {number} would begin at {state.log_start_offset}, beyond its cold end")
    for segment in wanted.added:
        _check_spans(segment, was, wanted)
    segments = was.segments.changed(wanted.removed, wanted.added)
    last_run = max((segment.run for segment in wanted.added), default=-1)
    states = {number: _trimmed(state) for number, state in wanted.partitions.items()}
    return replace(
        was,
        removed=segments.removed,
        added=segments.added,
        next_run=max(was.next_run, last_run + 1),
        partitions={**was.partitions, **states},
        totals=was.totals.after(left, wanted.added),
    )


def _check_spans(segment: TopicSegment, was: TopicState, wanted: TopicChange) -> None:
    """Raises `Invalid` unless the spans are in the order of partitions, and below the cold ends."""
    last = -1
    for span in segment.spans:
        number, first = span.partition, span.base_offset
        state = wanted.partitions.get(number) or was.partition(number)
        if not (last < number and first <= span.last_offset < state.cold_end):
            raise Invalid(f"{segment.key} cannot have offsets {first} to {span.last_offset} of partition {number}")
        last = number


def _trimmed(state: ColdState) -> ColdState:
    """`state` without the losses, leader epochs and cleanings of records below its log start."""
    start = state.log_start_offset
    begun = [at for at, epoch in enumerate(state.epochs) if epoch.first_offset <= start]
    return replace(
        state,
        losses=from_log_start(state.losses, start),
        epochs=state.epochs[begun[-1] if begun else 0 :],
        cleanings=tuple(each for each in state.cleanings if each.end_offset > start),
    )


def _moved(before: Floor, wanted: Floor | None) -> Floor:
    if wanted is None:
        return before
    if wanted.number < before.number:
        raise DoesNotApply(f"the floor is {before.number} already, beyond {wanted.number}")
    return Floor(wanted.number, max(before.epoch, wanted.epoch))


def _step(left: Iterable[TopicSegment], wanted: TopicChange) -> TopicStep:
    removed, added = (tuple(segment.sha256 for segment in segments) for segments in (left, wanted.added))
    states = sorted(wanted.partitions.items())
    offsets = ((number, state.log_start_offset, state.cold_end, state.clean_end) for number, state in states)
    return TopicStep(removed, added, tuple(offsets))
