"""Rules on the order of values: of one request, of a producer with sequences, and of one key."""

from __future__ import annotations

from tests.chaos.checker.final_log import FinalLogs, TopicPartition
from tests.chaos.checker.violation import Findings, Rule, Violation


def check_ordering(logs: FinalLogs) -> Findings:
    """All rules of this module."""
    for place in logs.logs:
        yield from _in_order(logs, place)
    yield from _keys_stay(logs)


def _in_order(logs: FinalLogs, place: TopicPartition) -> Findings:
    """Within a batch, and for a client that sends with sequences from batch to batch, numbers rise."""
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


def _keys_stay(logs: FinalLogs) -> Findings:
    """Holds for topics whose number of partitions does not change."""
    home: dict[tuple[str, str], TopicPartition] = {}
    for place, log in logs.logs.items():
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
