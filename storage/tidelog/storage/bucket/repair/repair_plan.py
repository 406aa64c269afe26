"""Plans the repair of a shard, purely, from the values that `repair_survey` read.

The archived side of a topic is rebuilt from the remaining segments:

- segments that the newest readable manifest lists and that exist;
- spare segments, which are sound and not listed (garbage, or segments that only a damaged version named), if all their
  records lie in **holes**. A hole is where a listed segment is missing, or where the manifest ends before the
  write-ahead log begins.

Offsets that no segment and no entry holds are recorded as lost. After that the floor can pass the lost entries of the
log: each of their records is in a segment or recorded as lost, or its partition has no later records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from msgspec import structs

from tidelog.storage.bucket.finding import Unreadable
from tidelog.storage.manifests.losses import Loss, past_losses, with_losses
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal_entry import Span, WalHeader

_ENDLESS = 2**63 - 1


@dataclass(frozen=True)
class LostWalEntry:
    """An entry of a log that is missing or damaged. `header` is None if its content is unknown."""

    key: str
    reason: str
    header: WalHeader | None


@dataclass(frozen=True)
class LogView:
    """A write-ahead log as it was read: the headers of the readable entries, and the lost entries."""

    shard: int
    floor: int
    headers: Mapping[int, WalHeader]
    lost: Mapping[int, LostWalEntry]

    def beginning_at(self, floor: int) -> LogView:
        """The log from a later floor on."""
        headers = {seq: header for seq, header in self.headers.items() if seq >= floor}
        return LogView(self.shard, floor, headers, {seq: lost for seq, lost in self.lost.items() if seq >= floor})

    @cached_property
    def spans(self) -> Mapping[str, Mapping[int, Sequence[tuple[int, Span]]]]:
        """By topic id and partition: the spans of all entries with a known header, with the entries' numbers,
        ascending."""
        known = dict(self.headers)
        known |= {seq: lost.header for seq, lost in self.lost.items() if lost.header is not None}
        found: dict[str, dict[int, list[tuple[int, Span]]]] = {}
        for seq in sorted(known):
            for span in known[seq].spans:
                place = span.topic_partition
                found.setdefault(place.topic_id, {}).setdefault(place.partition, []).append((seq, span))
        return found


@dataclass(frozen=True)
class TopicView:
    """The archived side of a topic as it was read. `missing` maps lost segments of its list to the reasons, and `spare`
    are sound segments that it does not list."""

    topic_id: str
    state: TopicState
    missing: Mapping[str, str] = field(default_factory=dict)
    spare: Sequence[TopicSegment] = ()


@dataclass(frozen=True)
class ShardView:
    """A shard as it was read. `manifest` is the newest readable version. `newest_key` names the newest one, and `fault`
    says why it cannot be read (None: it is `manifest`). `unreadable`: by id, the topics whose list or segments cannot
    be read; they are not among `topics`."""

    log: LogView
    manifest: ShardManifest
    newest_key: str
    newest_version: int
    fault: str | None = None
    topics: Sequence[TopicView] = ()
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicRepair:
    """The change of a topic: `removed` segments, with the reasons, leave the list, `added` ones enter it, `losses` are
    recorded, by partition. `next_run`: the topic's when it was planned."""

    topic: str
    topic_id: str
    next_run: int
    removed: Mapping[str, str]
    added: Sequence[TopicSegment]
    losses: Mapping[int, Sequence[Loss]]

    def change_of(self, state: TopicState) -> TopicChange | None:
        """The change of `state`, which may be later than the plan; None if it has it already."""
        shift = state.next_run - self.next_run
        came = [segment for segment in self.added if segment.key not in state.segments]
        moved = [structs.replace(each, run=each.run + shift) if each.run >= self.next_run else each for each in came]
        states: dict[int, ColdState] = {}
        for number in sorted({*self.losses, *(span.partition for each in came for span in each.spans)}):
            known = state.partition(number)
            losses = with_losses(known.losses, self.losses.get(number, ()))
            end = past_losses(losses, max(known.cold_end, _end_of(came, number)))
            if (losses, end) != (known.losses, known.cold_end):
                states[number] = structs.replace(known, losses=losses, cold_end=end)
        removed = tuple(key for key in self.removed if key in state.segments)
        if not (removed or moved or states):
            return None
        return TopicChange(self.topic, removed, tuple(moved), states)


@dataclass(frozen=True)
class ShardRepair:
    """The repair of a shard. The versions after `after_version` up to `replaces` cannot be read, because of `fault`,
    and are replaced. The floor moves past the lost `entries` once all entries before them are archived; from
    `unread_from` on, no entry can be read."""

    shard: int
    after_version: int
    replaces: int
    newest_key: str
    fault: str | None
    topics: Sequence[TopicRepair]
    entries: Mapping[int, LostWalEntry]
    unread_from: int

    def change_of(self, manifest: ShardManifest) -> ManifestChange | None:
        """The change of `manifest`, which may be later than the plan. The floor passes the lost entries at which it
        stands. None if there is nothing to change."""
        topics = {
            repair.topic_id: change
            for repair in self.topics
            if (change := repair.change_of(manifest.topics.get(repair.topic_id) or TopicState(repair.topic)))
        }
        floor = self.floor_after(manifest.floor)
        if not topics and floor == manifest.floor:
            return None
        listed = frozenset(segment.key for change in topics.values() for segment in change.added)
        return ManifestChange(ChangeKind.LOSE, topics, floor, collected=listed)

    def floor_after(self, floor: Floor) -> Floor:
        """The floor past the lost entries at which `floor` stands. An entry with an unknown header may have begun an
        epoch if no readable entry follows it (inv. 3)."""
        number, epoch = floor.number, floor.epoch
        while number in self.entries:
            header = self.entries[number].header
            epoch = max(epoch, header.epoch) if header else epoch + (number >= self.unread_from)
            number += 1
        return Floor(number, epoch)


def plan_shard(view: ShardView, at_ms: int) -> ShardRepair | None:
    """None if there is nothing to do."""
    topics = [repair for topic in view.topics if (repair := _plan_topic(view, topic, at_ms))]
    if not (view.fault or topics or view.log.lost):
        return None
    return ShardRepair(
        shard=view.log.shard,
        after_version=view.manifest.version,
        replaces=view.newest_version,
        newest_key=view.newest_key,
        fault=view.fault,
        topics=topics,
        entries=dict(sorted(view.log.lost.items())),
        unread_from=max(view.log.headers, default=-1) + 1,
    )


@dataclass(frozen=True)
class _Hole:
    """Offsets ``[begin, end)`` of a partition that no listed segment and no entry holds. `key` held them, in the run
    and level that a spare segment takes over. If it is `anchored`, only a segment that begins at `begin` fits."""

    partition: int
    begin: int
    end: int
    key: str
    run: int
    level: int
    anchored: bool = False

    def fits(self, span: SegmentSpan) -> bool:
        inside = self.partition == span.partition and self.begin <= span.base_offset and span.next_offset <= self.end
        return inside and not (self.anchored and span.base_offset != self.begin)

    def without(self, span: SegmentSpan) -> list[_Hole]:
        """What is left of it on both sides of `span`."""
        parts = [replace(self, end=span.base_offset), replace(self, begin=span.next_offset)]
        return [part for part in parts if part.begin < part.end]


def gaps(view: ShardView, topic: TopicView) -> Mapping[int, tuple[int, int]]:
    """For each partition whose archived records may end before its log begins: both offsets. If the newest version, or
    the content of an entry, is unknown, records may also be missing where the log has none."""
    open_end = view.fault is not None or any(entry.header is None for entry in view.log.lost.values())
    found: dict[int, tuple[int, int]] = {}
    spans = view.log.spans.get(topic.topic_id, {})
    for number in sorted({*spans, *topic.state.all_partitions}):
        state = topic.state.partition(number)
        cold_end = past_losses(state.losses, state.cold_end)
        hot_begin = spans[number][0][1].base_offset if number in spans else _ENDLESS if open_end else cold_end
        if hot_begin > cold_end:
            found[number] = cold_end, hot_begin
    return found


def _plan_topic(view: ShardView, topic: TopicView, at_ms: int) -> TopicRepair | None:
    added, left = _filled(_holes(view, topic), topic.spare, topic.state.next_run)
    losses: dict[int, list[Loss]] = {}
    for hole in left:
        if not hole.anchored:
            losses.setdefault(hole.partition, []).append(Loss(hole.begin, hole.end, hole.key, at_ms))
    for number, spans in view.log.spans.get(topic.topic_id, {}).items():
        state = topic.state.partition(number)
        known = with_losses(state.losses, losses.get(number, ()))
        begin = past_losses(known, max(state.cold_end, _end_of(added, number)))
        if of_log := _lost_of_log(view, spans, known, begin, at_ms):
            losses.setdefault(number, []).extend(of_log)
    if not (topic.missing or added or losses):
        return None
    return TopicRepair(topic.state.name, topic.topic_id, topic.state.next_run, topic.missing, tuple(added), losses)


def _holes(view: ShardView, topic: TopicView) -> list[_Hole]:
    holes: list[_Hole] = []
    for key in topic.missing:
        segment = topic.state.segments.named(key)
        assert segment is not None, "a missing segment is listed"
        for span in segment.spans:
            begin = max(span.base_offset, topic.state.partition(span.partition).log_start_offset)
            if begin < span.next_offset:
                holes.append(_Hole(span.partition, begin, span.next_offset, key, segment.run, segment.level))
    for number, (begin, end) in gaps(view, topic).items():
        holes.append(_Hole(number, begin, end, view.newest_key, topic.state.next_run, 0, anchored=True))
    return holes


def _filled(holes: list[_Hole], spare: Sequence[TopicSegment], next_run: int) -> tuple[list[TopicSegment], list[_Hole]]:
    """The spare segments that fit into `holes`, large ones first, and what is left of the holes. Segments beyond the
    list get runs of their own, one after the other, because a later run has later offsets."""
    taken: list[TopicSegment] = []
    waiting = sorted(spare, key=lambda segment: (-segment.records, segment.key))
    while fitting := next((each for each in waiting if _places(each, holes)), None):
        waiting.remove(fitting)
        places = _places(fitting, holes)
        run = max(hole.run for _, hole in places)
        level = min(hole.level for _, hole in places)
        taken.append(structs.replace(fitting, run=run, level=level))
        for span, hole in places:
            holes = [part for each in holes for part in (each.without(span) if each is hole else [each])]
        if run >= next_run:
            holes = [replace(hole, run=run + 1) if hole.anchored else hole for hole in holes]
    return taken, holes


def _places(segment: TopicSegment, holes: Sequence[_Hole]) -> Sequence[tuple[SegmentSpan, _Hole]]:
    """The hole of each span; empty if one does not fit."""
    found = [(span, hole) for span in segment.spans for hole in holes if hole.fits(span)]
    return found if len(found) == len(segment.spans) else ()


def _end_of(segments: Iterable[TopicSegment], partition: int) -> int:
    spans = (span for segment in segments for span in segment.spans if span.partition == partition)
    return max((span.next_offset for span in spans), default=0)


def _lost_of_log(
    view: ShardView, spans: Iterable[tuple[int, Span]], known: Sequence[Loss], cold_end: int, at_ms: int
) -> list[Loss]:
    """The offsets of a partition that are neither archived nor in a readable entry, nor among the `known` losses."""
    log, losses = view.log, list[Loss]()
    expected, after = cold_end, -1
    for seq, span in spans:
        if span.base_offset > past_losses(known, expected):
            key = _held_by(log, after, seq) or view.newest_key
            losses.append(Loss(past_losses(known, expected), span.base_offset, key, at_ms))
        begin = past_losses(known, max(span.base_offset, expected))
        if seq in log.lost and begin < span.next_offset:
            losses.append(Loss(begin, span.next_offset, log.lost[seq].key, at_ms))
        expected, after = max(expected, span.next_offset), seq
    return losses


def _held_by(log: LogView, after: int, before: int) -> str | None:
    """The key of the first lost entry between entries `after` and `before`."""
    return next((log.lost[seq].key for seq in sorted(log.lost) if after < seq < before), None)
