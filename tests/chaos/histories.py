"""Histories for the tests of the judge: short hand-made ones, and random ones of a correct service."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos.checker.history import (
    Acks,
    Append,
    EndQuery,
    FaultWindow,
    FinalLog,
    History,
    Outcome,
    Place,
    Read,
    Run,
    TopicRules,
    Trim,
)
from tests.chaos.checker.history_lines import Operation, add_operation

TOPIC = "t"
ALL_THE_TIME = FaultWindow("storm", -1.0, 1e9)


def sent(
    client: str,
    first: int,
    count: int = 1,
    *,
    at: float,
    took: float = 1.0,
    base: int | None = None,
    outcome: Outcome | None = None,
    partition: int | None = 0,
    sequenced: bool = False,
    expected: int | None = None,
    next_offset: int | None = None,
    keys: Sequence[str] = (),
    acks: Acks = Acks.ALL,
) -> Append:
    """An append from `at` to ``at + took``; `base` is its acknowledged offset."""
    placed = () if base is None else (Place(partition or 0, base, count),)
    told = outcome or (Outcome.UNKNOWN if base is None else Outcome.OK)
    return Append(
        client,
        TOPIC,
        partition,
        first,
        count,
        placed,
        keys,
        sequenced,
        expected,
        next_offset,
        acks,
        start=at,
        end=at + took,
        outcome=told,
    )


def seen(session: str, offset: int, *runs: Run, at: float, next_offset: int | None = None, took: float = 1.0) -> Read:
    """A read with an answer."""
    end = offset + sum(run.count for run in runs) if next_offset is None else next_offset
    return Read(session, TOPIC, 0, offset, end, runs, start=at, end=at + took, outcome=Outcome.OK)


def refused(session: str, offset: int, *, at: float, took: float = 1.0) -> Read:
    """A read whose answer was `out_of_range`."""
    return Read(session, TOPIC, 0, offset, offset, start=at, end=at + took, outcome=Outcome.OUT_OF_RANGE)


def asked_end(session: str, offset: int, *, at: float, took: float = 1.0) -> EndQuery:
    """A query for the end whose answer was `offset`."""
    return EndQuery(session, TOPIC, 0, offset, start=at, end=at + took, outcome=Outcome.OK)


def trimmed(before_offset: int, *, at: float, took: float = 1.0, outcome: Outcome = Outcome.OK) -> Trim:
    """Records below `before_offset` were deleted."""
    return Trim("trimmer", TOPIC, 0, before_offset, start=at, end=at + took, outcome=outcome)


def held(*runs: Run, partition: int = 0, log_start: int = 0) -> FinalLog:
    """The contents of a partition at the end."""
    return FinalLog(TOPIC, partition, log_start, runs)


def story(*parts: Operation) -> History:
    """A history under a fault that lasts all the time, so that any failure is excused."""
    return calm_story(ALL_THE_TIME, *parts)


def calm_story(*parts: Operation) -> History:
    """A history without faults except those among `parts`."""
    history = History()
    for part in parts:
        add_operation(history, part)
    return history


COMPACTED = TopicRules(TOPIC, compacted=True)
EXPIRING = TopicRules(TOPIC, expires=True)
GROWING = TopicRules(TOPIC, grows=True)


def random_history(draw: random.Random, *, steps: int = 60, partitions: int = 2) -> History:
    """Clients of a correct service whose answers get lost."""
    service = _Service(draw, partitions)
    service.history.faults.append(ALL_THE_TIME)
    clients: list[_Client] = [
        _Client("plain", draw),
        _Client("careful", draw, sequenced=True, partition=0),
        _Client("rival-a", draw, conditional=True, partition=0),
        _Client("rival-b", draw, conditional=True, partition=0),
        *(_Client(name, draw, reader=True, partition=n % partitions) for n, name in enumerate(("r1", "r2", "r3"))),
    ]
    calls = sorted((call for client in clients for call in client.calls(steps)), key=lambda call: call.effect)
    for call in calls:
        call.client.act(service, call)
    for partition, log in service.logs.items():
        service.history.finals.append(FinalLog(TOPIC, partition, 0, tuple(log)))
    return service.history


@dataclass
class _Call:
    client: _Client
    start: float
    effect: float
    end: float


@dataclass
class _Service:
    """Logs of single values as runs of one."""

    draw: random.Random
    partitions: int
    history: History = field(default_factory=History)
    logs: dict[int, list[Run]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logs = {partition: [] for partition in range(self.partitions)}

    def append(self, partition: int, client: str, first: int, count: int) -> int:
        log = self.logs[partition]
        base = len(log)
        log.extend(Run(base + n, client, first + n, 1) for n in range(count))
        return base


@dataclass
class _Client:
    name: str
    draw: random.Random
    sequenced: bool = False
    conditional: bool = False
    reader: bool = False
    partition: int = 0
    _next: int = 0
    _retry: tuple[int, int, int | None] | None = None
    _position: int = 0
    _guess: int = 0
    _homes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def calls(self, steps: int) -> Iterator[_Call]:
        now = self.draw.random()
        for _ in range(self.draw.randrange(steps)):
            start = now + self.draw.random()
            effect = start + self.draw.random()
            now = effect + self.draw.random()
            yield _Call(self, start, effect, now)

    def act(self, service: _Service, call: _Call) -> None:
        if self.reader:
            self._read(service, call)
        elif self.conditional:
            self._append_if(service, call)
        elif self.sequenced:
            self._append_in_sequence(service, call)
        else:
            self._append(service, call)

    def _read(self, service: _Service, call: _Call) -> None:
        if self.draw.random() < 0.3:
            end = len(service.logs[self.partition])
            query = EndQuery(self.name, TOPIC, self.partition, end, start=call.start, end=call.end, outcome=Outcome.OK)
            service.history.ends.append(query)
            return
        runs = tuple(service.logs[self.partition][self._position : self._position + self.draw.randrange(1, 8)])
        end = self._position + len(runs)
        service.history.reads.append(
            Read(
                self.name,
                TOPIC,
                self.partition,
                self._position,
                end,
                runs,
                start=call.start,
                end=call.end,
                outcome=Outcome.OK,
            )
        )
        self._position = end

    def _append(self, service: _Service, call: _Call) -> None:
        """Let the service choose the partition by the key, one key for all values."""
        count, key = self.draw.randrange(1, 5), f"k{self.draw.randrange(4)}"
        partition = int(key[1:]) % service.partitions
        outcome = self.draw.choice((Outcome.OK, Outcome.OK, Outcome.UNKNOWN, Outcome.FAIL))
        base = None
        if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and self.draw.random() < 0.5):
            base = service.append(partition, self.name, self._next, count)
        placed = (Place(partition, base, count),) if outcome is Outcome.OK and base is not None else ()
        service.history.appends.append(
            Append(
                self.name,
                TOPIC,
                None,
                self._next,
                count,
                placed,
                (key,) * count,
                start=call.start,
                end=call.end,
                outcome=outcome,
            )
        )
        self._next += count

    def _append_in_sequence(self, service: _Service, call: _Call) -> None:
        first, count, base = self._retry or (self._next, self.draw.randrange(1, 5), None)
        answered = self.draw.random() < 0.6
        if base is None and (answered or self.draw.random() < 0.5):
            base = service.append(self.partition, self.name, first, count)
        self._retry = None if answered else (first, count, base)
        self._next = first + count
        self._record(service, call, first, count, base if answered else None, sequenced=True)

    def _append_if(self, service: _Service, call: _Call) -> None:
        length = len(service.logs[self.partition])
        first, self._next = self._next, self._next + 1
        if self._guess != length:
            self._record(service, call, first, 1, None, expected=self._guess, next_offset=length)
            self._guess = length
            return
        base = service.append(self.partition, self.name, first, 1)
        self._record(service, call, first, 1, base if self.draw.random() < 0.7 else None, expected=self._guess)
        self._guess = base + 1

    def _record(
        self,
        service: _Service,
        call: _Call,
        first: int,
        count: int,
        base: int | None,
        *,
        sequenced: bool = False,
        expected: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        append = sent(
            self.name,
            first,
            count,
            at=call.start,
            took=call.end - call.start,
            base=base,
            outcome=None if next_offset is None else Outcome.CONFLICT,
            partition=self.partition,
            sequenced=sequenced,
            expected=expected,
            next_offset=next_offset,
        )
        service.history.appends.append(append)
