"""How the demo speaks: headings, facts, tables, and a live line of rates on a terminal (plain lines elsewhere).

With `--json` the narration goes to stderr, so that stdout holds the summary alone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
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
        """Numbers stand right, words left; a row of one cell is a remark."""
        table = Table(box=None, padding=(0, 0, 0, 3), header_style="dim")
        for at, column in enumerate(columns):
            numeric = bool(rows) and isinstance(rows[0][at], int | float) and not isinstance(rows[0][at], bool)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(shown(cell) for cell in row))
        self.console.print(table)

    def commands(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.console.print(f"   [green]{line}[/]", highlight=False, soft_wrap=True)


class Rates(AbstractContextManager["Rates"]):
    """Records and bytes as they go by, from any thread. On a terminal one line is redrawn; elsewhere a line is written
    each second."""

    def __init__(self, narrator: Narrator, verb: str, records_expected: int | None) -> None:
        self._narrator = narrator
        self._verb = verb
        self._total = records_expected
        self._began = narrator.clock.monotonic()
        self._spoke = self._began
        self.records = 0
        self.bytes = 0
        self._lock = threading.Lock()
        self._live: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Rates:
        if self._narrator.console.is_terminal:
            bar = () if self._total is None else (BarColumn(bar_width=20),)
            columns = (SpinnerColumn(), TextColumn("{task.description}"), *bar, TimeElapsedColumn())
            self._live = Progress(*columns, console=self._narrator.console, transient=True)
            self._live.start()
            self._task = self._live.add_task(self._verb, total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
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
            speaks = self._live is None and self.records != self._total and now - self._spoke >= PLAIN_LINE_SECONDS
            self._spoke = now if speaks else self._spoke
        if self._live is not None and self._task is not None:
            self._live.update(self._task, completed=self.records, description=self._line())
        elif speaks:
            self._narrator.say(self._line())

    def _line(self) -> str:
        seconds = max(self.seconds, 1e-9)
        return (
            f"{self._verb} {self.records:>9,} records, {self.bytes / MB:>6,.0f} MB"
            f"  {self.records / seconds:>9,.0f} records/s  {self.bytes / MB / seconds:>5,.0f} MB/s"
        )


def shown(cell: object) -> str:
    """A cell as people read it."""
    if isinstance(cell, bool):
        return "yes" if cell else "NO"
    if isinstance(cell, int):
        return f"{cell:,}"
    return str(cell)
