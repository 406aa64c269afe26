"""Rules on the contents of the log: no value is lost, doubled, misplaced, torn, or invented."""

from __future__ import annotations

from array import array
from collections import defaultdict

from tests.chaos.checker.deletions import Deletions
from tests.chaos.checker.final_log import HOLE, NUMBER_BITS, Batch, FinalLogs, Piece, TopicPartition
from tests.chaos.checker.history import Place
from tests.chaos.checker.violation import Findings, Rule, Violation

Found = list[tuple[TopicPartition, Piece]]
"""The place of a batch."""


def check_presence(logs: FinalLogs) -> Findings:
    """Check all rules of this module."""
    yield from _dense(logs)
    yield from _once(logs)
    found: dict[int, Found] = defaultdict(list)
    for place in logs.logs:
        for piece in logs.pieces(place):
            if piece.batch is None:
                name = logs.name(logs.logs[place][piece.base_offset])
                yield Violation(Rule.INVENTED, f"{_at(place, piece.base_offset)} holds {name}, which nobody sent")
            else:
                found[piece.batch].append((place, piece))
    deletions = Deletions(logs)
    for index, batch in enumerate(logs.batches):
        yield from _check_batch(logs, batch, found.get(index, []), deletions)


def _dense(logs: FinalLogs) -> Findings:
    for place, due, offset in logs.breaks:
        if offset >= due and logs.rules(place[0]).compacted:
            continue
        yield Violation(Rule.NOT_DENSE, f"{_at(place, due)} was due, and offset {offset} came")


def _once(logs: FinalLogs) -> Findings:
    seen: dict[int, bytearray] = defaultdict(bytearray)
    for place, log in logs.logs.items():
        for offset, value in enumerate(log):
            if value == HOLE:
                continue
            of_client, number = seen[value >> NUMBER_BITS], value & (1 << NUMBER_BITS) - 1
            if number >= len(of_client):
                of_client.extend(bytes(number + 1))
            if of_client[number]:
                yield Violation(Rule.DUPLICATED, f"{_at(place, offset)} holds {logs.name(value)} again")
            of_client[number] = 1


def _check_batch(logs: FinalLogs, batch: Batch, pieces: Found, deletions: Deletions) -> Findings:
    if pieces and batch.refused:
        place, piece = pieces[0]
        yield Violation(Rule.REFUSED_YET_TAKEN, f"{_at(place, piece.base_offset)} holds {batch}")
    for place, piece in pieces:
        if place[0] != batch.topic or batch.partition not in (None, place[1]):
            yield Violation(Rule.INVENTED, f"{_at(place, piece.base_offset)} holds {batch}, sent elsewhere")
    if not logs.rules(batch.topic).compacted:
        yield from _whole(logs, batch, pieces)
    yield from _acknowledged(logs, batch, pieces, deletions)


def _whole(logs: FinalLogs, batch: Batch, pieces: Found) -> Findings:
    """Values that are there twice, or acknowledged and missing, break other rules."""
    count = sum(piece.count for _, piece in pieces)
    if count > batch.count:
        return
    cut = any(0 < piece.base_offset == logs.starts[place] for place, piece in pieces)  # by a deletion of records
    if len({place for place, _ in pieces}) < len(pieces):
        yield Violation(Rule.TORN, f"{batch} stands in {len(pieces)} pieces: {_told(pieces)}")
    elif 0 < count < batch.count and batch.partition is not None and not any(batch.acknowledged()) and not cut:
        yield Violation(Rule.TORN, f"of {batch} only {count} values are in the log: {_told(pieces)}")


def _acknowledged(logs: FinalLogs, batch: Batch, pieces: Found, deletions: Deletions) -> Findings:
    missing = missing_values(logs, batch, pieces)
    for attempt in batch.acknowledged():
        if missing and not deletions.explain(batch, attempt, missing):
            names = f"{logs.name(missing[0])} ({len(missing)} values)"
            yield Violation(Rule.LOST, f"{names} of {batch}, acknowledged at {attempt.end:.3f} in {attempt.placed}")
        if not attempt.placed:
            continue  # acknowledged by a later answer that gives no offset
        if sum(placed.count for placed in attempt.placed) != batch.count:
            yield Violation(Rule.MISPLACED, f"the answer to {batch} tells other counts: {attempt.placed}")
        doubled = sum(piece.count for _, piece in pieces) > batch.count  # breaks another rule
        for place, piece in () if doubled else pieces:
            if not any(_holds(placed, place, piece) for placed in attempt.placed):
                where = _at(place, piece.base_offset)
                yield Violation(Rule.MISPLACED, f"{batch} is at {where}, acknowledged for {attempt.placed}")


def missing_values(logs: FinalLogs, batch: Batch, pieces: Found) -> list[int]:
    """The values of `batch` that are in none of its `pieces`."""
    here = {value for place, piece in pieces for value in _values(logs, place, piece)}
    first = logs.value(batch.client, batch.first)
    return [value for value in range(first, first + batch.count) if value not in here]


def _values(logs: FinalLogs, place: TopicPartition, piece: Piece) -> array[int]:
    return logs.logs[place][piece.base_offset : piece.base_offset + piece.count]


def _holds(placed: Place, place: TopicPartition, piece: Piece) -> bool:
    """Whether the piece lies within the acknowledged place."""
    return (
        placed.partition == place[1]
        and placed.base_offset <= piece.base_offset
        and piece.base_offset + piece.count <= placed.base_offset + placed.count
    )


def _told(pieces: Found) -> str:
    return ", ".join(f"{piece.count} at {_at(place, piece.base_offset)}" for place, piece in pieces[:4])


def _at(place: TopicPartition, offset: int) -> str:
    return f"{place[0]}/{place[1]}@{offset}"
