"""Plans the segments of a pass of the archiver, purely: one for each topic that has records in the entries.

A segment is sorted by (partition, offset). For each partition, its pieces are the spans of the entries, in their order.
A piece that fills row groups of its own in its entry is copied as it is stored; the rows between are decoded and
encoded together. So at a high rate, where each partition has hundreds of KB in an entry, almost nothing is decoded, and
at a low rate there is little to decode. A piece below `COPY_BYTES_MIN` is never copied, because a reader pays for each
row group.

    entry 17   | web-0 | web-1 | shop-0, shop-1 |        web:   copy 17:0, copy 18:0, copy 17:1, rows of 18
    entry 18   | web-0 | web-1, shop-0 |                 shop:  rows of 17 and 18
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from tidelog.storage.archive.archive_damage import Stuck
from tidelog.storage.errors import Corrupt, RecordsLost
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import past_losses
from tidelog.storage.manifests.shard_values import ColdState, LeaderEpoch
from tidelog.storage.wal.stored_entry import StoredEntry
from tidelog.storage.wal.wal_entry import ProducerMark, Span

COPY_BYTES_MIN = 128 * 1024
DECODED_BYTES_MAX = 192 * 1024 * 1024
"""Uncompressed bytes of the row groups that a pass decodes and holds. Row groups that are copied do not count."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows `span` of entry number `entry` of the pass, which was written in `epoch`. `groups`: the row groups that
    are copied; None: the rows are encoded again."""

    entry: int
    epoch: int
    span: Span
    groups: range | None


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """The records ``[base_offset, next_offset)`` of a partition, but for recorded losses: its pieces in their order, at
    least one, and the batches of idempotent producers in them."""

    pieces: Sequence[Piece]
    producers: Sequence[ProducerMark]

    @property
    def base_offset(self) -> int:
        return self.pieces[0].span.base_offset

    @property
    def next_offset(self) -> int:
        return self.pieces[-1].span.next_offset

    @property
    def records(self) -> int:
        return sum(piece.span.count for piece in self.pieces)

    @property
    def epochs(self) -> tuple[LeaderEpoch, ...]:
        """Of the leaders that wrote them."""
        begun = (next(pieces) for _, pieces in groupby(self.pieces, key=attrgetter("epoch")))
        return tuple(LeaderEpoch(piece.epoch, piece.span.base_offset) for piece in begun)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A segment of one topic: its partitions, ascending."""

    topic_id: str
    partitions: Mapping[int, PartitionPart]

    @property
    def pieces(self) -> Sequence[Piece]:
        """All rows of the segment, in their order."""
        return [piece for part in self.partitions.values() for piece in part.pieces]


@dataclass(frozen=True, slots=True)
class PassPlan:
    """The segments of a pass, and the partitions that have a gap: the records from some entry on cannot follow those
    before them."""

    topics: Sequence[TopicPlan]
    gaps: Mapping[TopicPartition, Stuck]


def plan_topics(entries: Sequence[StoredEntry], states: Mapping[TopicPartition, ColdState]) -> PassPlan:
    """The segments for the records of `entries`, neighbours in the log, that a manifest lacks in which the partitions
    have these `states`. Partitions without a state are left out. A gap is a `RecordsLost` if offsets are in neither the
    manifest nor the entries (inv. 5), and a `Corrupt` where offsets are used twice (inv. 4); the records before it are
    planned."""
    pieces: defaultdict[TopicPartition, list[Piece]] = defaultdict(list)
    marks: defaultdict[TopicPartition, list[ProducerMark]] = defaultdict(list)
    for number, entry in enumerate(entries):
        for span, groups in zip(entry.header.spans, _copied(entry), strict=True):
            pieces[span.topic_partition].append(Piece(number, entry.header.epoch, span, groups))
        for mark in entry.header.producers:
            marks[mark.topic_partition].append(mark)
    topics: defaultdict[str, dict[int, PartitionPart]] = defaultdict(dict)
    gaps: dict[TopicPartition, Stuck] = {}
    for place in sorted(pieces.keys() & states.keys()):
        lacking, gap = _lacking(place, pieces[place], states[place])
        if lacking:
            topics[place.topic_id][place.partition] = PartitionPart(lacking, tuple(marks.get(place, ())))
        if gap:
            gaps[place] = gap
    return PassPlan([TopicPlan(topic_id, partitions) for topic_id, partitions in topics.items()], gaps)


def affordable(entries: Sequence[StoredEntry]) -> int:
    """How many of `entries`, one at least, a pass can take without decoding more than `DECODED_BYTES_MAX`."""
    decoded_bytes = 0
    for number, entry in enumerate(entries):
        copied = {index for groups in _copied(entry) if groups for index in groups}
        decoded_bytes += sum(entry.group_bytes[index] for index in range(len(entry.group_bytes)) if index not in copied)
        if number and decoded_bytes > DECODED_BYTES_MAX:
            return number
    return len(entries)


def _copied(entry: StoredEntry) -> Sequence[range | None]:
    """For each span of an entry, the row groups that can be copied for it."""
    return [
        groups if groups and sum(entry.group_bytes[groups.start : groups.stop]) >= COPY_BYTES_MIN else None
        for groups in entry.own_groups
    ]


def _lacking(place: TopicPartition, pieces: Sequence[Piece], state: ColdState) -> tuple[list[Piece], Stuck | None]:
    """The pieces from the cold end on, dense but for recorded losses, up to a gap; the first may be cut."""
    expected = past_losses(state.losses, state.cold_end)
    lacking: list[Piece] = []
    for piece in pieces:
        span = piece.span
        if lacking and span.base_offset < lacking[-1].span.next_offset:
            return lacking, _used_twice(place, span)
        if span.next_offset <= expected:
            continue
        if span.base_offset > expected:
            return lacking, _lost(place, expected, span)
        if skipped := expected - span.base_offset:
            cut = Span(place, expected, span.count - skipped, span.first_row + skipped)
            piece = Piece(piece.entry, piece.epoch, cut, None)
        lacking.append(piece)
        expected = past_losses(state.losses, span.next_offset)
    return lacking, None


def _lost(place: TopicPartition, expected: int, span: Span) -> Stuck:
    name = f"{place.topic_id}/{place.partition}"
    text = f"offsets {expected} to {span.base_offset - 1} are neither in a segment nor in the WAL"
    lost = RecordsLost(name, text, first_offset=expected, next_offset=span.base_offset)
    return Stuck(lost, base_offset=span.base_offset)


def _used_twice(place: TopicPartition, span: Span) -> Stuck:
    text = f"has offset {span.base_offset} twice in the WAL (inv. 4)"
    return Stuck(Corrupt(f"{place.topic_id}/{place.partition}", text), base_offset=span.next_offset)
