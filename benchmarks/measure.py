"""The results of benchmarks as values: samples of a side, a row with its goal, a report. No I/O.

A row compares two `Side`s (Tidelog and another system) over the same records, or one side with a fixed limit. Its ratio
is that of the medians. The page shows the spread beside them, so that a reader can judge a difference.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Side:
    """The samples of one system in a row, in order of the rounds. `client` describes the work of its load program."""

    name: str
    client: str
    unit: str
    samples: Sequence[float]
    facts: Sequence[str] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def low(self) -> float:
        return min(self.samples)

    @property
    def high(self) -> float:
        return max(self.samples)


@dataclass(frozen=True)
class Goal:
    """With `at_least` the figure must be `limit` or more; without, `limit` or less."""

    text: str
    limit: float
    at_least: bool = True

    def met(self, measured: float) -> bool:
        return measured >= self.limit if self.at_least else measured <= self.limit


@dataclass(frozen=True)
class Origin:
    """When and how a row was measured. `settings`: one line for each kind of server, with the settings that are not its
    defaults. `load_before`: the load average of the machine before the family of rows began."""

    date: str
    commit: str
    rounds: int
    cpu: str
    disk: str
    load_before: float
    settings: Sequence[str] = ()
    note: str = ""


@dataclass(frozen=True)
class Row:
    """A line of the table. `measured` is the figure that the goal limits, usually `ours / theirs`. It is None if the
    row could not run; `note` then says why. `unit`: of `measured`, if it is neither a ratio nor a side's own unit."""

    name: str
    what: str
    goal: Goal
    measured: float | None
    sides: Sequence[Side] = ()
    note: str = ""
    origin: Origin | None = None
    unit: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.measured is None else self.goal.met(self.measured)

    @property
    def verdict(self) -> str:
        return {True: "met", False: "missed", None: "not run"}[self.met]


def compare(name: str, what: str, goal: Goal, ours: Side, theirs: Side, note: str = "") -> Row:
    """Make a row whose figure is our median divided by theirs."""
    return Row(name, what, goal, ours.median / theirs.median, (ours, theirs), note)


def not_run(name: str, what: str, goal: Goal, why: str) -> Row:
    return Row(name, what, goal, None, (), why)


@dataclass(frozen=True)
class Machine:
    """The size and software of the machine that wrote the report. Each row names its own processor."""

    cores: int
    memory_gib: float
    system: str
    python: str
    java: str
    versions: str
    quick: bool


@dataclass(frozen=True)
class Report:
    """All rows of a run. JSON is its only stored form."""

    machine: Machine
    rows: Sequence[Row] = field(default_factory=tuple)

    def to_json(self) -> str:
        rows = [asdict(row) | {"met": row.met} for row in self.rows]
        return json.dumps({"machine": asdict(self.machine), "rows": rows}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        document = json.loads(text)
        return cls(Machine(**document["machine"]), tuple(_row(row) for row in document["rows"]))

    def with_rows(self, rows: Sequence[Row], order: Sequence[str] = ()) -> Report:
        """Return the report with `rows` in place of earlier rows of the same name. Rows are sorted by `order`, a list
        of prefixes of names; rows that match no prefix come last."""
        kept = {row.name: row for row in (*self.rows, *rows)}

        def place(name: str) -> int:
            return next((at for at, prefix in enumerate(order) if name.startswith(prefix)), len(order))

        return Report(self.machine, tuple(kept[name] for name in sorted(kept, key=place)))


def _row(row: dict[str, Any]) -> Row:
    sides = tuple(Side(**side) for side in row["sides"])
    origin = Origin(**row["origin"]) if row["origin"] else None
    return Row(
        row["name"], row["what"], Goal(**row["goal"]), row["measured"], sides, row["note"], origin, row.get("unit", "")
    )


def interleave(rounds: int, sides: Mapping[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """Call each side in turn, `rounds` times (A B A B ...), so that a slow minute of the machine affects all sides."""
    found: dict[str, list[Any]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            found[name].append(run())
    return found
