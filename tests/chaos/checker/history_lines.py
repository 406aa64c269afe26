"""A history as JSON lines, one operation a line. `History` says what the fields mean.

    {"op": "append", "client": "p1", "topic": "t", "partition": 0, "first": 40, "count": 20, "keys": ["k7", ...],
     "sequenced": true, "expected_offset": null, "acks": "all", "start": 1.25, "end": 1.31, "outcome": "ok",
     "placed": [[0, 4711, 20]], "next_offset": null, "code": ""}
    {"op": "read", "session": "r1", "topic": "t", "partition": 0, "offset": 4711, "runs": [[4711, "p1", 40, 20]],
     "next_offset": 4731, "start": 1.40, "end": 1.42, "outcome": "ok", "code": ""}
    {"op": "end", "session": "r1", "topic": "t", "partition": 0, "offset": 4731, "start": 1.5, "end": 1.6, ...}
    {"op": "trim", "client": "d1", "topic": "t", "partition": 0, "before_offset": 100, "start": 2.0, "end": 2.1, ...}
    {"op": "heartbeat", "member": "m1", "group": "g", "owned": [["t", 0]], "assigned": [["t", 0]], "epoch": 7, ...}
    {"op": "commit", "member": "m1", "group": "g", "topic": "t", "partition": 0, "offset": 40, "epoch": 7, ...}
    {"op": "begin", "member": "m1", "group": "g", "topic": "t", "partition": 0, "offset": 40, "start": 2.0, ...}
    {"op": "group_read", "member": "m1", "group": "g", "topic": "t", "partition": 0, "offset": 40, "next_offset": 60,
     "epoch": 7, "polled": true, ...}
    {"op": "topic", "topic": "t", "compacted": false, "expires": false, "grows": false}
    {"op": "fault", "kind": "broker killed", "start": 3.0, "end": 9.5}
    {"op": "final", "topic": "t", "partition": 0, "log_start_offset": 0, "runs": [...]}

A run is ``[offset, client, first, count]``, an element of `placed` ``[partition, base offset, count]``. A line may hold
further fields; the parser ignores them. It refuses an operation that it does not know: a history whose lines are not
understood must not pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from enum import Enum
from typing import Any

from tests.chaos.checker.history import (
    Acks,
    Append,
    EndQuery,
    FaultWindow,
    FinalLog,
    GroupCommit,
    GroupPlace,
    GroupRead,
    GroupStart,
    Heartbeat,
    History,
    Outcome,
    Place,
    Read,
    Run,
    TopicRules,
    Trim,
)

Operation = (
    Append
    | Read
    | EndQuery
    | Trim
    | Heartbeat
    | GroupCommit
    | GroupStart
    | GroupRead
    | TopicRules
    | FaultWindow
    | FinalLog
)

KINDS: Mapping[str, type[Operation]] = {
    "append": Append,
    "read": Read,
    "end": EndQuery,
    "trim": Trim,
    "heartbeat": Heartbeat,
    "commit": GroupCommit,
    "begin": GroupStart,
    "group_read": GroupRead,
    "topic": TopicRules,
    "fault": FaultWindow,
    "final": FinalLog,
}
NAMES: Mapping[type[Operation], str] = {kind: name for name, kind in KINDS.items()}


def _runs(values: Iterable[Sequence[Any]]) -> tuple[Run, ...]:
    return tuple(Run(*value) for value in values)


def _places(values: Iterable[Sequence[Any]]) -> tuple[Place, ...]:
    return tuple(Place(*value) for value in values)


def _group_places(values: Iterable[Sequence[Any]]) -> tuple[GroupPlace, ...]:
    return tuple(GroupPlace(*value) for value in values)


READ_AS: Mapping[str, Callable[[Any], Any]] = {
    "outcome": Outcome,
    "acks": Acks,
    "runs": _runs,
    "placed": _places,
    "keys": tuple,
    "owned": _group_places,
    "assigned": _group_places,
}


def parse_history(lines: Iterable[str]) -> History:
    """Raises `ValueError` for what is no history."""
    history = History()
    for line in lines:
        add_operation(history, parse_operation(json.loads(line)))
    return history


def format_history(history: History) -> Iterator[str]:
    """The lines that `parse_history` reads."""
    for operations in (
        history.topics,
        history.appends,
        history.reads,
        history.ends,
        history.trims,
        history.heartbeats,
        history.group_commits,
        history.group_starts,
        history.group_reads,
        history.faults,
        history.finals,
    ):
        yield from map(format_operation, operations)


def parse_operation(line: Mapping[str, Any]) -> Operation:
    """Raises `ValueError` for a line with an unknown operation, or without a required field."""
    kind = KINDS.get(str(line.get("op")))
    if kind is None:
        raise ValueError(f"a line without a known operation: {line!r}")
    names = [each.name for each in fields(kind) if each.name in line]
    try:
        return kind(**{name: READ_AS.get(name, _as_it_is)(line[name]) for name in names})
    except TypeError as error:
        raise ValueError(f"an incomplete line: {line!r}") from error


def format_operation(operation: Operation, **remarks: str) -> str:
    """One line, without its line end. `remarks` are further fields for people."""
    shown = {each.name: _shown(getattr(operation, each.name)) for each in fields(operation)}
    return json.dumps({"op": NAMES[type(operation)], **shown, **remarks}, separators=(",", ":"))


def add_operation(history: History, operation: Operation) -> None:
    """Add `operation` to its list."""
    match operation:
        case Append():
            history.appends.append(operation)
        case Read():
            history.reads.append(operation)
        case EndQuery():
            history.ends.append(operation)
        case Trim():
            history.trims.append(operation)
        case Heartbeat():
            history.heartbeats.append(operation)
        case GroupCommit():
            history.group_commits.append(operation)
        case GroupStart():
            history.group_starts.append(operation)
        case GroupRead():
            history.group_reads.append(operation)
        case TopicRules():
            history.topics.append(operation)
        case FaultWindow():
            history.faults.append(operation)
        case FinalLog():
            history.finals.append(operation)


def _as_it_is(value: Any) -> Any:
    return value


def _shown(value: object) -> object:
    match value:
        case Enum():
            return value.value
        case Run() | Place() | GroupPlace():
            return list(astuple(value))
        case tuple() | list():
            return [_shown(each) for each in value]
        case _:
            return value
