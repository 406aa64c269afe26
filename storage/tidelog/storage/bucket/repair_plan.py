"""What a repair does with the damage of a bucket: decided purely, from what `repair_survey` read.

A partition's cold side is put together from what is left: segments that its newest readable manifest lists and that are
there, and spare segments (garbage, or named by a version that is damaged) where listed ones are missing or the manifest
ends before the write-ahead log begins. Offsets that are nowhere are recorded as lost. Then the lost entries of the log
can be given up: each of their records is in a segment, or recorded as lost, or their partition has nothing behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import Loss, past_losses, with_losses
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.wal_entry import Span, WalHeader


@dataclass(frozen=True)
class LostWalEntry:
    """An entry of a log that is missing or damaged; `header` None: nothing tells what it held."""

    key: str
    reason: str
    header: WalHeader | None


@dataclass(frozen=True)
class LogView:
    """A write-ahead log as it was read: the headers of entries that can be read, and those that are lost."""

    shard: int
    floor: int
    headers: Mapping[int, WalHeader]
    lost: Mapping[int, LostWalEntry]

    def spans(self) -> Mapping[TopicPartition, Sequence[tuple[int, Span]]]:
        """By partition: the spans of all entries whose header is known, with the entries' numbers, ascending."""
        known = dict(self.headers)
        known |= {seq: lost.header for seq, lost in self.lost.items() if lost.header is not None}
        found: dict[TopicPartition, list[tuple[int, Span]]] = {}
        for seq in sorted(known):
            for span in known[seq].spans:
                found.setdefault(span.topic_partition, []).append((seq, span))
        return found


@dataclass(frozen=True)
class PartitionView:
    """The cold side of a partition as it was read: its newest readable manifest, the key of the newest one and why that
    cannot be read (`fault` None: it is the same), listed segments that are lost with the reasons, and spare ones."""

    topic: str
    manifest: Manifest
    newest_key: str
    newest_version: int
    fault: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    spare: Sequence[Segment] = ()


@dataclass(frozen=True)
class PartitionRepair:
    """How the cold side of a partition changes: `removed` segments leave its list, `added` ones come, `losses` are
    recorded. `replaces`: versions after `after_version` up to this one cannot be read and are written anew."""

    topic: str
    place: TopicPartition
    after_version: int
    replaces: int
    damaged: Mapping[str, str]
    removed: Sequence[str]
    added: Sequence[Segment]
    losses: Sequence[Loss]

    def applied_to(self, manifest: Manifest) -> Manifest:
        """`manifest`, or a version after it, as it is to be."""
        kept = [segment for segment in manifest.segments if segment.key not in self.removed]
        known = {segment.key for segment in kept}
        came = [segment for segment in self.added if segment.key not in known]
        segments = tuple(sorted((*kept, *came), key=lambda segment: segment.base_offset))
        losses = with_losses(manifest.losses, self.losses)
        end = max(manifest.cold_end, *(segment.next_offset for segment in self.added), 0)
        garbage = tuple(item for item in manifest.garbage if item.key not in {segment.key for segment in came})
        return replace(manifest, segments=segments, losses=losses, garbage=garbage, cold_end=past_losses(losses, end))


@dataclass(frozen=True)
class LogRepair:
    """Entries of a log, ascending, that are given up: the floor moves past each, once all before it is archived. From
    `unread_from` on no entry can be read."""

    shard: int
    entries: Mapping[int, LostWalEntry]
    unread_from: int

    def epoch_after(self, seq: int, epoch_before: int) -> int:
        """The highest epoch below the floor once that has passed entry `seq`. Of an entry that nothing is known of, the
        entries behind it tell; where there are none, it may have begun an epoch (inv. 3)."""
        if header := self.entries[seq].header:
            return max(epoch_before, header.epoch)
        return epoch_before + (seq >= self.unread_from)


def plan_partition(view: PartitionView, log: LogView, at_ms: int) -> PartitionRepair | None:
    """None if there is nothing to do."""
    added, losses = _replaced(view, at_ms)
    spans = log.spans().get(view.manifest.topic_partition, ())
    cold_end, more = _extended(view, spans[0][1].base_offset if spans else None)
    added += more
    losses += _lost_of_log(view, log, spans, past_losses(with_losses(view.manifest.losses, losses), cold_end), at_ms)
    if not (view.fault or view.missing or added or losses):
        return None
    damaged = dict(view.missing) | ({view.newest_key: view.fault} if view.fault else {})
    return PartitionRepair(
        topic=view.topic,
        place=view.manifest.topic_partition,
        after_version=view.manifest.version,
        replaces=view.newest_version,
        damaged=damaged,
        removed=tuple(view.missing),
        added=tuple(added),
        losses=tuple(losses),
    )


def plan_log(log: LogView) -> LogRepair | None:
    """None if no entry is lost."""
    unread_from = max(log.headers, default=-1) + 1
    return LogRepair(log.shard, dict(sorted(log.lost.items())), unread_from) if log.lost else None


def _replaced(view: PartitionView, at_ms: int) -> tuple[list[Segment], list[Loss]]:
    """What takes the place of segments that are lost: spare ones, and losses for the rest."""
    added: list[Segment] = []
    losses: list[Loss] = []
    for segment in view.manifest.segments:
        if segment.key not in view.missing:
            continue
        reached, instead = _covered(view.spare, segment.base_offset, segment.next_offset)
        added += instead
        if reached < segment.next_offset:
            losses.append(Loss(reached, segment.next_offset, segment.key, at_ms))
    return added, losses


def _extended(view: PartitionView, hot_begin: int | None) -> tuple[int, list[Segment]]:
    """Spare segments that go on where the manifest ends, if that is damaged or the log begins later; up to where."""
    cold_end = past_losses(view.manifest.losses, view.manifest.cold_end)
    if view.fault is None and (hot_begin is None or hot_begin <= cold_end):
        return cold_end, []
    return _covered(view.spare, cold_end, None)


def _covered(spare: Sequence[Segment], begin: int, end: int | None) -> tuple[int, list[Segment]]:
    """Spare segments, one after the other, that hold all offsets from `begin` on, up to `end` at most; and how far."""
    reached, taken = begin, list[Segment]()
    while True:
        fits = [s for s in spare if s.base_offset == reached and (end is None or s.next_offset <= end)]
        if not fits:
            return reached, taken
        taken.append(max(fits, key=lambda segment: segment.last_offset))
        reached = taken[-1].next_offset


def _lost_of_log(
    view: PartitionView, log: LogView, spans: Iterable[tuple[int, Span]], cold_end: int, at_ms: int
) -> list[Loss]:
    """What is neither cold nor in an entry that can be read."""
    known = view.manifest.losses
    losses: list[Loss] = []
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
    """The key of the first lost entry between two entries."""
    return next((log.lost[seq].key for seq in sorted(log.lost) if after < seq < before), None)
