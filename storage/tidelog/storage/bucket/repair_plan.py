"""Plans the repair of a bucket, purely, from the values that `repair_survey` read.

The archived side of a partition is rebuilt from the remaining segments:

- segments that the newest readable manifest lists and that exist;
- where a listed segment is missing, or the manifest ends before the write-ahead log begins, spare segments: garbage, or
  segments that only a damaged version names.

Offsets that no segment and no entry holds are recorded as lost. After that the lost entries of the log can be given up:
each of their records is in a segment or recorded as lost, or its partition has no later records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import Loss, past_losses, with_losses
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.wal.wal_entry import Span, WalHeader


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

    def spans(self) -> Mapping[TopicPartition, Sequence[tuple[int, Span]]]:
        """By partition: the spans of all entries with a known header, with the entries' numbers, ascending."""
        known = dict(self.headers)
        known |= {seq: lost.header for seq, lost in self.lost.items() if lost.header is not None}
        found: dict[TopicPartition, list[tuple[int, Span]]] = {}
        for seq in sorted(known):
            for span in known[seq].spans:
                found.setdefault(span.topic_partition, []).append((seq, span))
        return found


@dataclass(frozen=True)
class PartitionView:
    """The archived side of a partition as it was read. `manifest` is the newest readable one. `newest_key` names the
    newest one, and `fault` says why it cannot be read (None: it is `manifest`). `missing` maps lost segments of the
    manifest to the reasons, and `spare` are segments that it does not list."""

    topic: str
    manifest: Manifest
    newest_key: str
    newest_version: int
    fault: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    spare: Sequence[Segment] = ()


@dataclass(frozen=True)
class PartitionRepair:
    """The change of a partition's manifest: `removed` segments leave the list, `added` ones enter it, `losses` are
    recorded. The versions after `after_version` up to `replaces` cannot be read and are replaced."""

    topic: str
    place: TopicPartition
    after_version: int
    replaces: int
    damaged: Mapping[str, str]
    removed: Sequence[str]
    added: Sequence[Segment]
    losses: Sequence[Loss]

    def applied_to(self, manifest: Manifest) -> Manifest:
        """`manifest` with the change. It may be a later version than the plan was made from."""
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
    """The entries of a log to give up, ascending: the floor moves past each once all entries before it are archived.
    From `unread_from` on, no entry can be read."""

    shard: int
    entries: Mapping[int, LostWalEntry]
    unread_from: int

    def epoch_after(self, seq: int, epoch_before: int) -> int:
        """The highest epoch below the floor once it has passed entry `seq`. An entry with an unknown header may have
        begun an epoch if no readable entry follows it (inv. 3)."""
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
    """The spare segments that replace lost ones, and the losses for the offsets that remain."""
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
    """If the manifest is damaged or the log begins later: the spare segments that continue it, and where they end."""
    cold_end = past_losses(view.manifest.losses, view.manifest.cold_end)
    if view.fault is None and (hot_begin is None or hot_begin <= cold_end):
        return cold_end, []
    return _covered(view.spare, cold_end, None)


def _covered(spare: Sequence[Segment], begin: int, end: int | None) -> tuple[int, list[Segment]]:
    """How far spare segments hold all offsets from `begin` on, up to `end` at most; and these segments."""
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
    """The offsets that are neither archived nor in a readable entry."""
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
    """The key of the first lost entry between entries `after` and `before`."""
    return next((log.lost[seq].key for seq in sorted(log.lost) if after < seq < before), None)
