"""Makes the list of a topic again, if its object is lost or damaged: from the history and the segments that exist.

The history of a shard names, by their sha256, exactly the segments that the list must have, and the offsets of each
partition (`shard_chain`). So a segment in the topic's folder belongs to the list if the history names it. It is read
whole, because its sha256 and its spans are needed. Segments that the history names and that do not exist are lost; the
offsets that no segment holds are recorded as losses.

What only the list had is lost: the last batches of idempotent producers, leader epochs, when compaction was first over
records, and runs. Runs are numbered again, so that later records of a partition are in later runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

from msgspec.structs import replace

from tidelog.storage.bucket.replay import Link, Replay, TopicReplay, links
from tidelog.storage.bucket.segment_reading import described
from tidelog.storage.errors import Conflict, Corrupt
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import shard_segment_prefix
from tidelog.storage.manifests.losses import Loss, not_lost, with_losses
from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.shard_history import ShardHistory
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, Garbage, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState, Totals
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.segments.topic_segment import SegmentPlace

SEGMENTS_AT_ONCE = 4


@dataclass(frozen=True)
class ListRestore:
    """The repair of a topic whose list, `key`, cannot be read because of `reason`. `planned`: its state in the version
    that was read. `state`: the state to change by `change`; for each lost segment it has a nameless one, which the
    change removes, so that the history stays exact."""

    topic_id: str
    key: str
    reason: str
    planned: TopicState
    state: TopicState
    change: TopicChange

    @property
    def lost_segments(self) -> int:
        return len(self.change.removed)

    def losses(self) -> Mapping[int, Sequence[Loss]]:
        """The losses that are recorded, by partition."""
        return {number: state.losses for number, state in sorted(self.change.partitions.items()) if state.losses}

    async def apply(self, log: ShardLog) -> None:
        """Append a version with the list made again. Raises `Conflict` if the topic has changed since."""
        latest = await log.latest()
        topic = latest.topics.get(self.topic_id)
        if topic is None or topic.changed_since(self.planned):
            raise Conflict(f"topic {self.planned.name} has changed since its list was read: run the repair again")
        left = Garbage(self.key, 0, latest.version)
        before = replace(latest, topics={**latest.topics, self.topic_id: self.state}, garbage=(*latest.garbage, left))
        await log.append(ManifestChange(ChangeKind.LOSE, {self.topic_id: self.change}), before)


async def plan_list(
    store: ObjectStore, log: ShardLog, manifest: ShardManifest, topic_id: str, fault: Corrupt, at_ms: int
) -> ListRestore:
    """Raises `Corrupt` if the history is not whole, or if the segments that exist do not fit together."""
    topic = manifest.topics[topic_id]
    assert topic.stored is not None, "its list cannot be read"
    history = await _history_of(store, log, manifest, topic_id)
    garbage = {each.key for each in manifest.garbage}
    prefix = shard_segment_prefix(topic.name, topic_id, log.shard)
    infos = [info async for info in list_all(store, prefix) if info.key not in garbage]
    place = SegmentPlace(topic.name, topic_id, log.shard)
    found: list[TopicSegment] = []
    async for _, segment in in_order(infos, lambda info: described(store, place, info), at_once=SEGMENTS_AT_ONCE):
        if segment is not None and history.segments[segment.sha256]:
            history.segments[segment.sha256] -= 1
            found.append(segment)
    lost = tuple(_nameless(place, sha256) for sha256 in history.segments.elements())
    ordered = _in_runs(found, topic.stored.key)
    states = {number: _state(topic, number, offsets) for number, offsets in history.offsets.items()}
    holes = {number: _begin_of_holes(state, is_whole=not lost) for number, state in states.items()}
    after = {
        number: _with_losses(number, state, holes[number], ordered, topic.stored.key, at_ms)
        for number, state in states.items()
    }
    state = TopicState(
        name=topic.name,
        next_run=max(topic.next_run, len(ordered)),
        added=columns_of((*lost, *ordered)),
        partitions=states,
        totals=Totals().after((), (*lost, *ordered)),
    )
    change = TopicChange(topic.name, removed=tuple(segment.key for segment in lost), partitions=after)
    return ListRestore(topic_id, topic.stored.key, fault.reason, topic, state, change)


async def _history_of(store: ObjectStore, log: ShardLog, manifest: ShardManifest, topic_id: str) -> TopicReplay:
    replay = Replay(log.shard, wanted=[topic_id])
    async with aclosing(links(log, ShardHistory(store, log.shard), 0, manifest.version)) as history:
        async for found in history:
            if not isinstance(found, Link):
                raise found
            replay.take(found)
    return replay.topics[topic_id]


def _nameless(place: SegmentPlace, sha256: str) -> TopicSegment:
    """A lost segment, of which only the sha256 is known."""
    return TopicSegment(place.key(sha256[:32]), 0, 0, 0, sha256, 0, 0, 0, (SegmentSpan(0, 0, 0, 0, 0),))


def _in_runs(segments: Sequence[TopicSegment], key: str) -> tuple[TopicSegment, ...]:
    """The segments, each in a run of its own, so that later offsets of a partition are in later runs."""
    of_partition: dict[int, list[tuple[SegmentSpan, str]]] = defaultdict(list)
    for segment in segments:
        for span in segment.spans:
            of_partition[span.partition].append((span, segment.key))
    order: TopologicalSorter[str] = TopologicalSorter({segment.key: () for segment in segments})
    for spans in of_partition.values():
        for (one, former), (other, later) in pairwise(sorted(spans, key=lambda each: each[0].base_offset)):
            if other.base_offset < one.next_offset:
                raise Corrupt(key, f"cannot be made again: {former} and {later} have the same records")
            order.add(later, former)
    named = {segment.key: segment for segment in segments}
    return tuple(replace(named[each], run=run) for run, each in enumerate(order.static_order()))


def _state(topic: TopicState, number: int, offsets: tuple[int, int, int]) -> ColdState:
    """What is known of a partition: from the version, if its state changed since the list, else from the history."""
    log_start_offset, cold_end, clean_end = offsets
    return topic.partitions.get(number) or ColdState(log_start_offset, cold_end, clean_end)


def _begin_of_holes(state: ColdState, *, is_whole: bool) -> int:
    """Where offsets that no segment holds are losses: below the clean end, compaction may have removed them."""
    return max(state.log_start_offset, state.clean_end if is_whole else 0)


def _with_losses(
    number: int, state: ColdState, begin: int, segments: Sequence[TopicSegment], key: str, at_ms: int
) -> ColdState:
    """`state` with a loss wherever, from `begin` on, no segment holds its offsets."""
    held = [span for segment in segments for span in segment.spans if span.partition == number]
    edges = sorted((span.base_offset, span.next_offset) for span in held)
    losses: list[Loss] = []
    for base_offset, next_offset in [*edges, (state.cold_end, state.cold_end)]:
        losses += [Loss(*lost, key, at_ms) for lost in not_lost(state.losses, begin, base_offset)]
        begin = max(begin, next_offset)
    return replace(state, losses=with_losses(state.losses, losses))
