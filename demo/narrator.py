"""What the demo prints: headings, facts, tables, and rates while records are sent or read.

With `--json` all of it goes to stderr, so that stdout has the summary alone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.table import Table

from tidelog.storage.runtime import Clock

PLAIN_LINE_SECONDS = 1.0
MB = 1e6


class Narrator:
    """Writes to one console."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self.console = console
        self.clock = clock
        self._step = 0

    def step(self, title: str) -> None:
        self._step += 1
        self.console.print(f"\n[bold cyan]{self._step}  {title}[/]")

    def say(self, text: str) -> None:
        self.console.print(f"   {text}")

    def warn(self, text: str) -> None:
        self.console.print(f"   [bold yellow]{text}[/]")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows under headings. Columns of numbers are aligned to the right."""
        table = Table(box=None, padding=(0, 0, 0, 3), header_style="dim")
        for at, column in enumerate(columns):
            numeric = bool(rows) and isinstance(rows[0][at], int | float) and not isinstance(rows[0][at], bool)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_shown(cell) for cell in row))
        self.console.print(table)

    def commands(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.console.print(f"   [green]{line}[/]", highlight=False, soft_wrap=True)


class Rates(AbstractContextManager["Rates"]):
    """Counts records and bytes from any thread. A terminal shows the rates in one live line; other outputs get a line
    every second. The last line stays."""

    def __init__(self, narrator: Narrator, verb: str) -> None:
        self._narrator = narrator
        self._verb = verb
        self._began = self._printed = narrator.clock.monotonic()
        self._lock = threading.Lock()
        self._live = narrator.console.status(verb)
        self.records = 0
        self.bytes = 0

    def __enter__(self) -> Rates:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()
        self._narrator.say(self._line())

    @property
    def seconds(self) -> float:
        return self._narrator.clock.monotonic() - self._began

    def add(self, records: int, size_bytes: int) -> None:
        with self._lock:
            self.records += records
            self.bytes += size_bytes
            now = self._narrator.clock.monotonic()
            is_due = now - self._printed >= PLAIN_LINE_SECONDS
            self._printed = now if is_due else self._printed
        if self._narrator.console.is_terminal:
            self._live.update(self._line())
        elif is_due:
            self._narrator.say(self._line())

    def _line(self) -> str:
        seconds = max(self.seconds, 1e-9)
        return (
            f"{self._verb} {self.records:>9,} records, {self.bytes / MB:>6,.0f} MB"
            f"  {self.records / seconds:>9,.0f} records/s  {self.bytes / MB / seconds:>5,.0f} MB/s"
        )


def _shown(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "NO"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
