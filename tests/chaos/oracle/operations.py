"""A history as the operations that the log oracle reads; `log_oracle/history.go` defines them.

The oracle judges the topics whose logs only grow. It leaves compacted topics, and partitions whose first records were
deleted, to the judge. All attempts of a batch are one append. An append without a lasting promise (acks=0 and 1, or no
answer) has an unknown outcome.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.checker.history import Acks, Append, EndQuery, FinalLog, History, Outcome, Place, Read, Run

NO_OFFSET = -1
"""A value that fits no state of a log."""

RunLine = tuple[str, int, int]
Line = dict[str, object]


@dataclass(frozen=True)
class _Batch:
    """All attempts to append the same values."""

    attempts: Sequence[Append]

    @property
    def acknowledged(self) -> Append | None:
        """The attempt that was answered first."""
        answered = (a for a in self.attempts if a.outcome is Outcome.OK and a.acks is Acks.ALL and a.placed)
        return min(answered, key=lambda attempt: attempt.end, default=None)

    @property
    def may_be_taken(self) -> bool:
        return any(a.outcome in (Outcome.OK, Outcome.UNKNOWN) for a in self.attempts)

    @property
    def values(self) -> RunLine:
        one = self.attempts[0]
        return one.client, one.first, one.count


def oracle_lines(history: History, prefix: str = "") -> Iterator[str]:
    """The operations of every partition that the oracle judges. `prefix` is put before each partition's name, so that
    one call of the oracle can judge several histories."""
    yield from (
        json.dumps({**line, "place": f"{prefix}{line['place']}"}, separators=(",", ":")) for line in _lines(history)
    )


def _lines(history: History) -> Iterator[Line]:
    finals = {(final.topic, final.partition): final for final in history.finals if _only_grows(history, final)}
    over = 1.0 + max((each.end for kind in (history.appends, history.reads, history.ends) for each in kind), default=0)
    for final in finals.values():
        yield _line(final, "final", over, over, 0, _dense(0, final.runs))
    yield from _appends(history.appends, finals)
    for read in history.reads:
        if (read.topic, read.partition) in finals:
            yield from _of_read(read)
    for end in history.ends:
        if (end.topic, end.partition) in finals and end.outcome is Outcome.OK:
            yield _line(end, "end", end.start, end.end, end.offset, [])


def _only_grows(history: History, final: FinalLog) -> bool:
    rules = next((rules for rules in history.topics if rules.topic == final.topic), None)
    return final.log_start_offset == 0 and not (rules and (rules.compacted or rules.expires))


def _appends(appends: Iterable[Append], finals: dict[tuple[str, int], FinalLog]) -> Iterator[Line]:
    batches: dict[tuple[str, int], list[Append]] = defaultdict(list)
    for append in appends:
        batches[append.client, append.first].append(append)
        if append.outcome is Outcome.CONFLICT and (append.topic, append.partition) in finals:
            refused_for_nothing = append.next_offset == append.expected_offset
            told = NO_OFFSET if refused_for_nothing else append.next_offset
            yield _line(append, "end", append.start, append.end, told, [])
    for attempts in batches.values():
        batch = _Batch(attempts)
        if batch.may_be_taken:
            yield from _of_batch(batch, finals)


def _of_batch(batch: _Batch, finals: dict[tuple[str, int], FinalLog]) -> Iterator[Line]:
    known = batch.acknowledged
    return _of_unknown(batch, finals) if known is None else _of_acknowledged(batch, known, finals)


def _of_unknown(batch: _Batch, finals: dict[tuple[str, int], FinalLog]) -> Iterator[Line]:
    one = batch.attempts[0]
    for (topic, partition), final in finals.items():
        if topic == one.topic and one.partition in (None, partition):
            values = [batch.values] if one.partition is not None else _among(final, batch)
            if values:
                yield _placed(f"{topic}/{partition}", batch, None, None, values)


def _of_acknowledged(batch: _Batch, known: Append, finals: dict[tuple[str, int], FinalLog]) -> Iterator[Line]:
    for placed in known.placed:
        if final := finals.get((known.topic, placed.partition)):
            values = [batch.values] if known.partition is not None else _among(final, batch)
            offset = placed.base_offset if known.expected_offset in (None, placed.base_offset) else NO_OFFSET
            place = f"{known.topic}/{placed.partition}"
            yield _placed(place, batch, known.end, offset, _told_count(values, placed))


def _of_read(read: Read) -> Iterator[Line]:
    if read.outcome is Outcome.OUT_OF_RANGE:
        yield _line(read, "beyond", read.start, read.end, read.offset, [])
    if read.outcome is Outcome.OK and (read.runs or read.next_offset == read.offset):
        yield _line(read, "read", read.start, read.end, read.offset, _dense(read.offset, read.runs))


def _among(final: FinalLog, batch: _Batch) -> list[RunLine]:
    """The values of a batch that a partition holds, in the order they were sent. Only they show the share of a batch
    that the service spread over partitions: its answer names partitions, not values."""
    client, first, count = batch.values
    cut = (
        (max(run.first, first), min(run.first + run.count, first + count)) for run in final.runs if run.client == client
    )
    return [(client, low, high - low) for low, high in sorted(cut) if low < high]


def _told_count(values: Sequence[RunLine], placed: Place) -> Sequence[RunLine]:
    """Values that nobody sent stand for a share that differs from the answer."""
    return values if sum(count for _, _, count in values) == placed.count else [("nobody", 0, placed.count)]


def _dense(offset: int, runs: Sequence[Run]) -> list[RunLine]:
    """The values from `offset` on. Values that nobody sent stand for offsets that are missing or occur twice."""
    values: list[RunLine] = []
    for run in runs:
        if run.offset != offset:
            values.append(("nobody", 0, max(1, run.offset - offset)))
        values.append((run.client, run.first, run.count))
        offset = run.offset + run.count
    return values


def _placed(place: str, batch: _Batch, end: float | None, offset: int | None, values: Sequence[RunLine]) -> Line:
    client, first, count = batch.values
    return {
        "place": place,
        "kind": "append",
        "call": min(attempt.start for attempt in batch.attempts),
        "return": end,
        "offset": offset,
        "runs": values,
        "told": f"{client}:{first}..{first + count - 1}",
    }


def _line(
    of: Append | Read | EndQuery | FinalLog,
    kind: str,
    start: float,
    end: float,
    offset: int | None,
    values: Sequence[RunLine],
) -> Line:
    who = of.client if isinstance(of, Append) else of.session if not isinstance(of, FinalLog) else "final read"
    return {
        "place": f"{of.topic}/{of.partition}",
        "kind": kind,
        "call": start,
        "return": end,
        "offset": offset,
        "runs": values,
        "told": f"{who} at offset {offset}",
    }
