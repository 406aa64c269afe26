"""What clients did and what they were told, as JSON lines, and nothing of how a broker works.

A value is named by the client that made it and its number: ``(client, n)``; each client counts its values from 0. A
**run** ``[offset, client, first, count]`` stands for `count` values of one client, number `first` and following, at
`offset` and following. Times are seconds of one monotonic clock that all clients share.

    {"op": "append", "client": "p1", "topic": "t", "partition": 0, "first": 40, "count": 20, "keys": ["k7", ...],
     "sequenced": true, "expected_offset": null, "start": 1.25, "end": 1.31, "outcome": "ok",
     "placed": [[0, 4711, 20]], "next_offset": null}
    {"op": "read", "session": "r1", "topic": "t", "partition": 0, "offset": 4711, "runs": [[4711, "p1", 40, 20]],
     "next_offset": 4731, "start": 1.40, "end": 1.42, "outcome": "ok"}
    {"op": "final", "topic": "t", "partition": 0, "log_start_offset": 0, "runs": [...]}

An **append** is one attempt; a retry of the same values is another line. `partition` null: the service chose; `keys`
are left out where values have none; `sequenced`: sent so that retries are told apart from new ones, in order.
`outcome` is ``ok``, ``fail`` (the client was told that nothing was taken), ``conflict`` (`expected_offset` was not the
partition's next offset, which was `next_offset`) or ``unknown``. `placed` are ``[partition, base offset, count]``.

A **read** is one step of a session that reads a partition on and on; its outcome is ``ok``, ``out_of_range`` or
``unknown``. **final** is what the partition held once all was over. Any other operation is passed over, so that a
history may hold remarks of whoever wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    """What a client knows of an operation."""

    OK = "ok"
    FAIL = "fail"
    CONFLICT = "conflict"
    OUT_OF_RANGE = "out_of_range"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Run:
    """`count` values of `client` from number `first` on, at `offset` and following."""

    offset: int
    client: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part of an append went, as its answer said."""

    partition: int
    base_offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Append:
    """One attempt to append; see the module's head."""

    client: str
    topic: str
    partition: int | None
    first: int
    count: int
    start: float
    end: float
    outcome: Outcome
    placed: Sequence[Place] = ()
    keys: Sequence[str] = ()
    sequenced: bool = False
    expected_offset: int | None = None
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """One step of a session."""

    session: str
    topic: str
    partition: int
    offset: int
    next_offset: int
    start: float
    end: float
    outcome: Outcome
    runs: Sequence[Run] = ()


@dataclass(frozen=True, slots=True)
class FinalLog:
    """What a partition held at the end."""

    topic: str
    partition: int
    log_start_offset: int
    runs: Sequence[Run]


@dataclass(frozen=True)
class History:
    """All of a run."""

    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    finals: list[FinalLog] = field(default_factory=list)


def parse_history(lines: Iterable[str]) -> History:
    """Raises `ValueError` for what is no history."""
    history = History()
    for line in lines:
        _add(history, json.loads(line))
    return history


def format_history(history: History) -> Iterator[str]:
    """The lines that `parse_history` reads back."""
    for append in history.appends:
        yield json.dumps(_append_fields(append))
    for read in history.reads:
        yield json.dumps(_read_fields(read))
    for final in history.finals:
        yield json.dumps(_final_fields(final))


def _add(history: History, line: dict[str, Any]) -> None:
    match line.get("op"):
        case "append":
            history.appends.append(_append(line))
        case "read":
            history.reads.append(_read(line))
        case "final":
            runs = _runs(line["runs"])
            history.finals.append(FinalLog(line["topic"], line["partition"], line["log_start_offset"], runs))
        case None:
            raise ValueError(f"a line without an operation: {line!r}")


def _append(line: dict[str, Any]) -> Append:
    return Append(
        client=line["client"],
        topic=line["topic"],
        partition=line["partition"],
        first=line["first"],
        count=line["count"],
        start=line["start"],
        end=line["end"],
        outcome=Outcome(line["outcome"]),
        placed=tuple(Place(*place) for place in line.get("placed", ())),
        keys=tuple(line.get("keys", ())),
        sequenced=line.get("sequenced", False),
        expected_offset=line.get("expected_offset"),
        next_offset=line.get("next_offset"),
    )


def _read(line: dict[str, Any]) -> Read:
    return Read(
        session=line["session"],
        topic=line["topic"],
        partition=line["partition"],
        offset=line["offset"],
        next_offset=line["next_offset"],
        start=line["start"],
        end=line["end"],
        outcome=Outcome(line["outcome"]),
        runs=_runs(line.get("runs", ())),
    )


def _runs(runs: Iterable[Sequence[Any]]) -> tuple[Run, ...]:
    return tuple(Run(*run) for run in runs)


def _append_fields(append: Append) -> dict[str, Any]:
    return {
        "op": "append",
        "client": append.client,
        "topic": append.topic,
        "partition": append.partition,
        "first": append.first,
        "count": append.count,
        "start": append.start,
        "end": append.end,
        "outcome": append.outcome.value,
        "placed": [[place.partition, place.base_offset, place.count] for place in append.placed],
        "keys": list(append.keys),
        "sequenced": append.sequenced,
        "expected_offset": append.expected_offset,
        "next_offset": append.next_offset,
    }


def _read_fields(read: Read) -> dict[str, Any]:
    return {
        "op": "read",
        "session": read.session,
        "topic": read.topic,
        "partition": read.partition,
        "offset": read.offset,
        "next_offset": read.next_offset,
        "start": read.start,
        "end": read.end,
        "outcome": read.outcome.value,
        "runs": _run_fields(read.runs),
    }


def _final_fields(final: FinalLog) -> dict[str, Any]:
    return {
        "op": "final",
        "topic": final.topic,
        "partition": final.partition,
        "log_start_offset": final.log_start_offset,
        "runs": _run_fields(final.runs),
    }


def _run_fields(runs: Sequence[Run]) -> list[list[object]]:
    return [[run.offset, run.client, run.first, run.count] for run in runs]
