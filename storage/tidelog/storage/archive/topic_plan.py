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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from tidelog.storage.errors import Corrupt, RecordsLost
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import past_losses
from tidelog.storage.manifests.shard_values import ColdState, LeaderEpoch
from tidelog.storage.wal.wal_entry import ProducerMark, Span, WalHeader

COPY_BYTES_MIN = 128 * 1024
DECODED_BYTES_MAX = 192 * 1024 * 1024
"""Uncompressed bytes of the row groups that a pass decodes and holds. Row groups that are copied do not count."""


class PlannedEntry(Protocol):
    """What a plan needs of an entry (`wal.stored_entry`)."""

    @property
    def header(self) -> WalHeader: ...

    @property
    def group_bytes(self) -> Sequence[int]:
        """The uncompressed bytes of its row groups."""
        ...

    @property
    def own_groups(self) -> Sequence[range | None]:
        """For each span of the header, the row groups that hold its rows and no others."""
        ...


@dataclass(frozen=True, slots=True)
class Copy:
    """Row groups `first_group` up to `end_group` of entry number `entry` of the pass are copied."""

    entry: int
    first_group: int
    end_group: int


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows from `first_row` of entry number `entry` of the pass are encoded again."""

    entry: int
    first_row: int
    count: int


Part = Copy | Rows


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """The records ``[base_offset, next_offset)`` of a partition, but for recorded losses: their number, and what the
    manifest will say of them."""

    base_offset: int
    next_offset: int
    records: int
    epochs: tuple[LeaderEpoch, ...]
    producers: tuple[ProducerMark, ...]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A segment of one topic: its parts in order, and its partitions, ascending."""

    topic_id: str
    parts: tuple[Part, ...]
    partitions: Mapping[int, PartitionPart]


@dataclass(frozen=True, slots=True)
class _Piece:
    entry: int
    epoch: int
    span: Span
    groups: range | None


@dataclass(frozen=True, slots=True)
class Gap:
    """The records of a partition from some entry on cannot follow those before them. They can once its cold end, past
    its recorded losses, is `next_offset`."""

    next_offset: int
    fault: Corrupt


@dataclass(frozen=True, slots=True)
class PassPlan:
    """The segments of a pass, by topic id, and the partitions that have a gap."""

    topics: Sequence[TopicPlan]
    gaps: Mapping[TopicPartition, Gap]


def plan_topics(entries: Sequence[PlannedEntry], states: Mapping[TopicPartition, ColdState]) -> PassPlan:
    """The segments for the records of `entries`, neighbours in the log, that a manifest lacks in which the partitions
    have these `states`. Partitions without a state are left out. A gap is a `RecordsLost` if offsets are in neither the
    manifest nor the entries (inv. 5), and a `Corrupt` where offsets are used twice (inv. 4); the records before it are
    planned."""
    pieces: defaultdict[TopicPartition, list[_Piece]] = defaultdict(list)
    marks: defaultdict[TopicPartition, list[ProducerMark]] = defaultdict(list)
    for number, entry in enumerate(entries):
        for piece in _pieces(number, entry):
            pieces[piece.span.topic_partition].append(piece)
        for mark in entry.header.producers:
            marks[mark.topic_partition].append(mark)
    topics: defaultdict[str, dict[int, list[_Piece]]] = defaultdict(dict)
    gaps: dict[TopicPartition, Gap] = {}
    for place in sorted(pieces.keys() & states.keys()):
        lacking, gap = _lacking(place, pieces[place], states[place])
        if lacking:
            topics[place.topic_id][place.partition] = lacking
        if gap:
            gaps[place] = gap
    return PassPlan([_plan(topic_id, partitions, marks) for topic_id, partitions in topics.items()], gaps)


def affordable(entries: Sequence[PlannedEntry]) -> int:
    """How many of `entries`, one at least, a pass can take without decoding more than `DECODED_BYTES_MAX`."""
    decoded_bytes = 0
    for number, entry in enumerate(entries):
        copied = [_bytes_of(entry, groups) for groups in entry.own_groups if _may_be_copied(groups, entry)]
        decoded_bytes += sum(entry.group_bytes) - sum(copied)
        if number and decoded_bytes > DECODED_BYTES_MAX:
            return number
    return len(entries)


def _pieces(number: int, entry: PlannedEntry) -> Iterator[_Piece]:
    """The spans of an entry, each with the row groups that can be copied for it."""
    epoch = entry.header.epoch
    for span, groups in zip(entry.header.spans, entry.own_groups, strict=True):
        yield _Piece(number, epoch, span, groups if _may_be_copied(groups, entry) else None)


def _may_be_copied(groups: range | None, entry: PlannedEntry) -> TypeGuard[range]:
    return groups is not None and _bytes_of(entry, groups) >= COPY_BYTES_MIN


def _bytes_of(entry: PlannedEntry, groups: range) -> int:
    return sum(entry.group_bytes[groups.start : groups.stop])


def _lacking(place: TopicPartition, pieces: Sequence[_Piece], state: ColdState) -> tuple[list[_Piece], Gap | None]:
    """The pieces from the cold end on, dense but for recorded losses, up to a gap; the first may be cut."""
    expected = past_losses(state.losses, state.cold_end)
    lacking: list[_Piece] = []
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
            piece = _Piece(piece.entry, piece.epoch, cut, None)
        lacking.append(piece)
        expected = past_losses(state.losses, span.next_offset)
    return lacking, None


def _lost(place: TopicPartition, expected: int, span: Span) -> Gap:
    text = f"offsets {expected} to {span.base_offset - 1} are neither in a segment nor in the WAL"
    lost = RecordsLost(_name(place), text, first_offset=expected, next_offset=span.base_offset)
    return Gap(span.base_offset, lost)


def _used_twice(place: TopicPartition, span: Span) -> Gap:
    text = f"has offset {span.base_offset} twice in the WAL (inv. 4)"
    return Gap(span.next_offset, Corrupt(_name(place), text))


def _name(place: TopicPartition) -> str:
    return f"{place.topic_id}/{place.partition}"


def _plan(
    topic_id: str, partitions: Mapping[int, list[_Piece]], marks: Mapping[TopicPartition, list[ProducerMark]]
) -> TopicPlan:
    parts = [_part(piece) for pieces in partitions.values() for piece in pieces]
    described = {
        number: _described(pieces, marks.get(TopicPartition(topic_id, number), []))
        for number, pieces in partitions.items()
    }
    return TopicPlan(topic_id, tuple(parts), described)


def _part(piece: _Piece) -> Part:
    if piece.groups is None:
        return Rows(piece.entry, piece.span.first_row, piece.span.count)
    return Copy(piece.entry, piece.groups.start, piece.groups.stop)


def _described(pieces: Sequence[_Piece], marks: Sequence[ProducerMark]) -> PartitionPart:
    epochs: list[LeaderEpoch] = []
    for piece in pieces:
        if not epochs or epochs[-1].epoch != piece.epoch:
            epochs.append(LeaderEpoch(piece.epoch, piece.span.base_offset))
    return PartitionPart(
        base_offset=pieces[0].span.base_offset,
        next_offset=pieces[-1].span.next_offset,
        records=sum(piece.span.count for piece in pieces),
        epochs=tuple(epochs),
        producers=tuple(marks),
    )
