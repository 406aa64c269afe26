"""An index of a history: batches of values, and the place of each value. Every rule is one pass over it.

A value is an integer, ``client << 40 | n``. A value that is in no batch was never sent. The arrays take 8 bytes per
value, so millions fit in memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos.checker.history import Acks, Append, FinalLog, History, Outcome, Run, TopicRules

NUMBER_BITS = 40
HOLE = -1
"""An offset at which the final read found no record."""
GAP_MAX = 10_000_000
"""A gap larger than this is reported but not filled with holes."""

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Batch:
    """The values of one request, with all attempts to send them."""

    client: str
    topic: str
    partition: int | None
    first: int
    count: int
    keys: Sequence[str]
    sequenced: bool
    attempts: list[Append] = field(default_factory=list)

    @property
    def start(self) -> float:
        """The earliest time at which it can have entered the log."""
        return min(attempt.start for attempt in self.attempts)

    @property
    def refused(self) -> bool:
        """Whether every attempt got the answer that nothing was taken."""
        return all(attempt.outcome in (Outcome.FAIL, Outcome.CONFLICT) for attempt in self.attempts)

    def acknowledged(self) -> Iterator[Append]:
        """The attempts whose answer promises that the values stay."""
        return (a for a in self.attempts if a.outcome is Outcome.OK and a.acks is Acks.ALL)

    def __str__(self) -> str:
        return f"{self.client}:{self.first}..{self.first + self.count - 1} to {self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Adjacent offsets of a partition that hold values of one batch, or one value that was never sent."""

    batch: int | None
    base_offset: int
    count: int


class FinalLogs:
    """`history` with an index. `logs`: the value at each offset of each partition."""

    def __init__(self, history: History) -> None:
        self._clients: dict[str, int] = {}
        self._names: list[str] = []
        self._batch_of: dict[int, array[int]] = {}
        self.batches: list[Batch] = []
        self._topics = {rules.topic: rules for rules in history.topics}
        self._collect(history.appends)
        self.logs: dict[TopicPartition, array[int]] = {}
        self.breaks: list[tuple[TopicPartition, int, int]] = []
        """Where the final read was not dense: partition, expected offset, found offset."""
        self.starts: dict[TopicPartition, int] = {}
        """The log start offset of each partition at the end."""
        for final in history.finals:
            self._lay_out(final)

    def log(self, place: TopicPartition) -> array[int]:
        """The value at each offset; empty for a partition that was not read at the end."""
        return self.logs.get(place, array("q"))

    def rules(self, topic: str) -> TopicRules:
        return self._topics.get(topic) or TopicRules(topic)

    def value(self, client: str, number: int) -> int:
        """The integer for a value, whether or not it was sent."""
        return self._client(client) << NUMBER_BITS | number

    def name(self, value: int) -> str:
        """``client:n``."""
        return f"{self._names[value >> NUMBER_BITS]}:{value & (1 << NUMBER_BITS) - 1}" if value >= 0 else "nothing"

    def values_of(self, run: Run) -> array[int]:
        first = self.value(run.client, run.first)
        return array("q", range(first, first + run.count))

    def values_there(self) -> set[int]:
        """Every value that is in some partition."""
        return {value for log in self.logs.values() for value in log if value != HOLE}

    def batch_of(self, value: int) -> int | None:
        """The index of the batch that holds `value`, or None if nobody sent it."""
        of_client = self._batch_of.get(value >> NUMBER_BITS)
        number = value & (1 << NUMBER_BITS) - 1
        if value < 0 or of_client is None or number >= len(of_client) or of_client[number] < 0:
            return None
        return of_client[number]

    def pieces(self, place: TopicPartition) -> Iterator[Piece]:
        """The partition as pieces, in order of offsets, without holes."""
        begin, last = 0, None
        log = self.logs[place]
        for offset, value in enumerate(log):
            batch = self.batch_of(value)
            if batch is None or batch != last:
                if begin < offset and log[begin] != HOLE:
                    yield Piece(last, begin, offset - begin)
                begin, last = offset, batch
        if begin < len(log) and log[begin] != HOLE:
            yield Piece(last, begin, len(log) - begin)

    def _client(self, name: str) -> int:
        if name not in self._clients:
            self._clients[name] = len(self._names)
            self._names.append(name)
        return self._clients[name]

    def _collect(self, appends: Sequence[Append]) -> None:
        known: dict[tuple[str, int], int] = {}
        for append in appends:
            at = known.setdefault((append.client, append.first), len(self.batches))
            if at == len(self.batches):
                self.batches.append(_batch(append))
                self._claim(append, at)
            batch = self.batches[at]
            if (append.topic, append.partition, append.count) != (batch.topic, batch.partition, batch.count):
                raise ValueError(f"two attempts of one batch differ: {batch} and {append}")
            batch.attempts.append(append)

    def _claim(self, append: Append, at: int) -> None:
        of_client = self._batch_of.setdefault(self._client(append.client), array("q"))
        end = append.first + append.count
        if end > len(of_client):
            of_client.extend([HOLE] * (end - len(of_client)))
        if any(other != HOLE for other in of_client[append.first : end]):
            raise ValueError(f"{append.client} sent a value in two batches: {append}")
        of_client[append.first : end] = array("q", [at]) * append.count

    def _lay_out(self, final: FinalLog) -> None:
        place = (final.topic, final.partition)
        if place in self.logs:
            raise ValueError(f"two final reads of {place}")
        self.starts[place] = final.log_start_offset
        log = self.logs[place] = array("q", [HOLE]) * min(final.log_start_offset, GAP_MAX)
        for run in final.runs:
            if run.offset != len(log):
                self.breaks.append((place, len(log), run.offset))
                log.extend([HOLE] * min(max(0, run.offset - len(log)), GAP_MAX))
            log.extend(self.values_of(run))


def _batch(append: Append) -> Batch:
    return Batch(
        append.client, append.topic, append.partition, append.first, append.count, append.keys, append.sequenced
    )
