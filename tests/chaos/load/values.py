"""Values that say who made them: ``client:number:key:padding``. What a reader gets back must be that to the letter.

The padding follows from the number, so a value that was cut, mixed up or given another's key is not read as any value
that was sent: it becomes a value of nobody, and the judge finds it invented.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PADDING = "the quick brown fox jumps over the lazy dog " * 4
NOBODY = "?"


@dataclass(frozen=True, slots=True)
class Value:
    """The `number`-th value of `client`; `key` is empty where it has none."""

    client: str
    number: int
    key: str = ""

    @property
    def text(self) -> str:
        return f"{self.client}:{self.number}:{self.key}:{PADDING[: self.number * 7 % 150]}"


def parse_value(text: str | None, key: str | None) -> tuple[str, int]:
    """Client and number; a client that nobody is if this is no such value, or under another key."""
    parts = (text or "").split(":", 3)
    if len(parts) == 4 and parts[1].isdigit():
        value = Value(parts[0], int(parts[1]), parts[2])
        if value.text == text and (key or "") == value.key:
            return value.client, value.number
    return f"{NOBODY}{(text or '')[:60]!r} under {key!r}", 0


def runs_of(records: Iterable[tuple[int, str | None, str | None]]) -> list[list[object]]:
    """``[offset, client, first, count]`` of neighbours that continue each other; `records` are offset, value, key."""
    runs: list[list[object]] = []
    due: tuple[int, str, int] | None = None
    for offset, text, key in records:
        client, number = parse_value(text, key)
        if due == (offset, client, number):
            runs[-1][3] = int(str(runs[-1][3])) + 1
        else:
            runs.append([offset, client, number, 1])
        due = (offset + 1, client, number + 1)
    return runs
