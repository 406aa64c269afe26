"""Rules on the order of values: within a request, of a producer with sequences, and of a key."""

from __future__ import annotations

from collections import defaultdict

from tests.chaos.checker.final_log import FinalLogs, TopicPartition
from tests.chaos.checker.violation import Findings, Rule, Violation


def check_ordering(logs: FinalLogs) -> Findings:
    """Check all rules of this module."""
    for place in logs.logs:
        yield from _in_order(logs, place)
        if not logs.rules(place[0]).compacted:
            yield from _without_gap(logs, place)
    yield from _keys_stay(logs)


def _in_order(logs: FinalLogs, place: TopicPartition) -> Findings:
    """Numbers rise within a batch and, for a client with sequences, from batch to batch."""
    last: dict[str, int] = {}
    log = logs.logs[place]
    for piece in logs.pieces(place):
        if piece.batch is None:
            continue
        batch = logs.batches[piece.batch]
        lane = batch.client if batch.sequenced else f"{batch.client}:{batch.first}"
        for offset in range(piece.base_offset, piece.base_offset + piece.count):
            if log[offset] < last.get(lane, -1):
                told = f"{place[0]}/{place[1]}@{offset} holds {logs.name(log[offset])} behind {logs.name(last[lane])}"
                yield Violation(Rule.REORDERED, told)
                break
            last[lane] = log[offset]


def _without_gap(logs: FinalLogs, place: TopicPartition) -> Findings:
    """A sequence has no gap. If a missing value was acknowledged, that breaks another rule (LOST)."""
    for client, there in _sequences(logs, place).items():
        first = min(there) if logs.starts[place] else 0  # earlier ones may be below the log start
        batches = {logs.batch_of(logs.value(client, n)) for n in range(first, max(there)) if n not in there}
        for index in batches:
            batch = logs.batches[index] if index is not None else None
            if batch is None or not any(batch.acknowledged()):
                told = batch or f"a value of {client} that nobody sent"
                yield Violation(Rule.SEQUENCE_GAP, f"{told} is missing, later ones of {client} are in {place}")


def _sequences(logs: FinalLogs, place: TopicPartition) -> dict[str, set[int]]:
    """The numbers of each client with sequences that are in the log of a partition."""
    numbers: dict[str, set[int]] = defaultdict(set)
    log = logs.logs[place]
    for piece in logs.pieces(place):
        batch = logs.batches[piece.batch] if piece.batch is not None else None
        if batch is not None and batch.sequenced:
            base = logs.value(batch.client, 0)
            end = piece.base_offset + piece.count
            numbers[batch.client].update(value - base for value in log[piece.base_offset : end])
    return numbers


def _keys_stay(logs: FinalLogs) -> Findings:
    """Applies to topics whose number of partitions does not change."""
    home: dict[tuple[str, str], TopicPartition] = {}
    for place, log in logs.logs.items():
        if logs.rules(place[0]).grows:
            continue
        for piece in logs.pieces(place):
            batch = logs.batches[piece.batch] if piece.batch is not None else None
            if batch is None or not batch.keys or batch.partition is not None:
                continue
            first = logs.value(batch.client, batch.first)
            for offset in range(piece.base_offset, piece.base_offset + piece.count):
                key = batch.keys[log[offset] - first]
                if home.setdefault((batch.topic, key), place) != place:
                    told = f"{logs.name(log[offset])} of key {key!r} is in {place}, an earlier one in "
                    yield Violation(Rule.KEY_MOVED, told + str(home[batch.topic, key]))
