"""Records that the service may delete, and rules on their deletion.

A record may be deleted if it lies below the log start or, in a compacted topic, if its key has a newer record. The log
start itself must have a reason: somebody asked to delete up to it, or the topic's records expire.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.chaos.checker.final_log import Batch, FinalLogs, TopicPartition
from tests.chaos.checker.history import Append, History, Outcome, Read, Trim
from tests.chaos.checker.violation import Findings, Rule, Violation


class Deletions:
    """Knows which acknowledged values may be missing in the final log."""

    def __init__(self, logs: FinalLogs) -> None:
        self._logs = logs
        self._newest: dict[tuple[TopicPartition, str], int] = {}
        for place in logs.logs:
            if logs.rules(place[0]).compacted:
                self._note_keys(place)

    def explain(self, batch: Batch, attempt: Append, missing: Sequence[int]) -> bool:
        """Whether all of `missing`, values of `batch` that `attempt` acknowledged, may have been deleted. If the
        service spread a batch over partitions, the answer does not name the values, so they are only counted."""
        if self._logs.rules(batch.topic).compacted and attempt.placed:
            return all(self._superseded(batch, attempt, value) for value in missing)
        starts = [self._logs.starts.get((batch.topic, placed.partition), 0) for placed in attempt.placed]
        below = (min(start - at.base_offset, at.count) for start, at in zip(starts, attempt.placed, strict=True))
        return len(missing) <= sum(max(0, count) for count in below)

    def _superseded(self, batch: Batch, attempt: Append, value: int) -> bool:
        """Requests with keys to one partition write the compacted topics."""
        number = value - self._logs.value(batch.client, batch.first)
        placed = attempt.placed[0]
        newest = self._newest.get(((batch.topic, placed.partition), batch.keys[number]), -1)
        return newest > placed.base_offset + number

    def _note_keys(self, place: TopicPartition) -> None:
        log = self._logs.logs[place]
        for piece in self._logs.pieces(place):
            batch = self._logs.batches[piece.batch] if piece.batch is not None else None
            if batch is None or not batch.keys:
                continue
            first = self._logs.value(batch.client, batch.first)
            for offset in range(piece.base_offset, piece.base_offset + piece.count):
                self._newest[place, batch.keys[log[offset] - first]] = offset


def check_deletions(logs: FinalLogs, history: History) -> Findings:
    """Check all rules of this module."""
    trims: dict[TopicPartition, list[Trim]] = defaultdict(list)
    for trim in history.trims:
        trims[trim.topic, trim.partition].append(trim)
    for place, start in logs.starts.items():
        asked = max((t.before_offset for t in trims[place] if t.outcome is not Outcome.FAIL), default=0)
        if start > asked and not logs.rules(place[0]).expires:
            yield Violation(Rule.LOG_START, f"{place} begins at {start}; deletion was asked up to {asked}")
    for place, of_place in trims.items():
        reads = (read for read in history.reads if (read.topic, read.partition) == place)
        yield from _deleted(of_place, reads)


def _deleted(trims: Iterable[Trim], reads: Iterable[Read]) -> Findings:
    """No read that begins after the answer to a deletion shows a record below its offset."""
    answered = [trim for trim in trims if trim.outcome is Outcome.OK]
    for read in reads:
        before = max((trim.before_offset for trim in answered if trim.end < read.start), default=0)
        if read.runs and read.runs[0].offset < before:
            told = f"{read.session} on {read.topic}/{read.partition} at {read.start:.3f}"
            yield Violation(Rule.UNDELETED, f"{told} saw offset {read.runs[0].offset}; deleted up to {before}")
