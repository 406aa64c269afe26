"""A table of the components, printed before any is made.

It shows for each component whether it is ready, will be made (with which program, time and download), or is missing,
and what needs it. Below the table are the ways to get missing components, and the total time.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from infra.component import Component


class State(Enum):
    """Whether a component is ready."""

    READY = "ready"
    TO_MAKE = "to make"
    ABSENT = "not fetched"
    MISSING = "MISSING"


@dataclass(frozen=True)
class Outlook:
    """One component's state; `lacking` names the program without which it cannot be made."""

    component: Component
    state: State
    lacking: str = ""

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Name, state, cost and purpose, as the table shows them."""
        known = self.component
        made = self.state in (State.TO_MAKE, State.ABSENT)
        cost = f"{_duration(known.seconds)}, {known.megabytes} MB" if made else ""
        return known.name, self._state_text(), cost, known.purpose

    @property
    def remedy(self) -> str:
        """How to get it, if it will not be made."""
        left_out = self.state in (State.ABSENT, State.MISSING)
        return f"{self.component.name}: {self.component.how}" if left_out else ""

    def _state_text(self) -> str:
        if self.state is State.MISSING:
            return f"{self.state.value} (no {self.lacking})"
        if self.state is State.TO_MAKE and self.component.programs:
            return f"{self.state.value}, with {self.component.programs[0]}"
        return str(self.state.value)


def outlook(component: Component, *, may_make: bool) -> Outlook:
    """The state of `component` on this machine. `may_make`: whether it will be made if that is possible."""
    if component.find() is not None:
        return Outlook(component, State.READY)
    lacking = next((program for program in component.programs if shutil.which(program) is None), "")
    if lacking:
        return Outlook(component, State.MISSING, lacking)
    return Outlook(component, State.TO_MAKE if may_make else State.ABSENT)


def table(outlooks: Sequence[Outlook]) -> str:
    """The table and the lines below it."""
    rows = [("component", "state", "takes about", "for"), *(each.row for each in outlooks)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *_remedies(outlooks), *_total(outlooks)])


def _remedies(outlooks: Sequence[Outlook]) -> list[str]:
    remedies = [f"  {each.remedy}" for each in outlooks if each.remedy]
    return ["Tests and commands that need a missing component are skipped. To get one:", *remedies] if remedies else []


def _total(outlooks: Sequence[Outlook]) -> list[str]:
    """The total time and download; components are made one after the other."""
    to_make = [each.component for each in outlooks if each.state is State.TO_MAKE]
    if not to_make:
        return []
    seconds, megabytes = sum(each.seconds for each in to_make), sum(each.megabytes for each in to_make)
    return [
        f"Making {', '.join(each.name for each in to_make)} takes about {_duration(seconds)} and fetches about "
        f"{megabytes} MB, once: they are kept in the cache. `FETCH=no` skips this."
    ]


def _duration(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else f"{seconds / 60:.3g} min"
