"""Values that name their maker: ``client:number:key:padding``. A reader must get back exactly these characters.

The padding follows from the number. So a value that was cut, mixed up or given another key does not look like a value
that was sent; the judge reports it as invented.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.chaos.checker.history import Run

PADDING = "the quick brown fox jumps over the lazy dog " * 4
NOBODY = "?"


@dataclass(frozen=True, slots=True)
class Value:
    """The `number`-th value of `client`; `key` is empty if it has none."""

    client: str
    number: int
    key: str = ""

    @property
    def text(self) -> str:
        return f"{self.client}:{self.number}:{self.key}:{PADDING[: self.number * 7 % 150]}"


def parse_value(text: str | None, key: str | None) -> tuple[str, int]:
    """Client and number. If the value was not sent, or has another key, the client is one that does not exist."""
    parts = (text or "").split(":", 3)
    if len(parts) == 4 and parts[1].isdigit():
        value = Value(parts[0], int(parts[1]), parts[2])
        if value.text == text and (key or "") == value.key:
            return value.client, value.number
    return f"{NOBODY}{(text or '')[:60]!r} under {key!r}", 0


def runs_of(records: Iterable[tuple[int, str | None, str | None]]) -> list[Run]:
    """Runs of adjacent values that continue each other; `records` are offset, value, key."""
    runs: list[Run] = []
    for offset, text, key in records:
        client, number = parse_value(text, key)
        last = runs[-1] if runs else None
        if last and (offset, client, number) == (last.offset + last.count, last.client, last.first + last.count):
            runs[-1] = replace(last, count=last.count + 1)
        else:
            runs.append(Run(offset, client, number, 1))
    return runs
