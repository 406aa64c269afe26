"""Shows the progress of long work on stderr: a bar on a terminal, elsewhere a plain line now and then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tidelog.services.cli.console import complain, size_text
from tidelog.storage.runtime import SystemClock

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PLAIN_EVERY_S = 10.0
"""Time between two plain lines. Shorter work prints none."""


class Progress:
    """Counts bytes of `total_bytes` (None: unknown), or records with `of_records`. A command that prints as it works
    (`writes_stdout`) does so within `hidden`.

    On a terminal it shows a bar, unless a person types the input (`reads_stdin`, and stdin is a terminal). Elsewhere it
    prints a line every `PLAIN_EVERY_S`, without control codes."""

    def __init__(
        self,
        title: str,
        total_bytes: int | None,
        unit: str = "records",
        *,
        reads_stdin: bool = True,
        writes_stdout: bool = False,
        of_records: bool = False,
    ) -> None:
        self.records = 0
        self._title = title
        self._unit = unit
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._reads_stdin = reads_stdin
        self._of_records = of_records
        self._shares_terminal = writes_stdout and sys.stdout.isatty()
        self._bar: Bar | None = None
        self._clock = SystemClock()
        self._printed_s = self._clock.monotonic()

    @property
    def shows(self) -> bool:
        """Whether it shows a bar."""
        return self._bar is not None

    def expect(self, total_bytes: int) -> None:
        """Set an estimate of the bytes in all."""
        self._total_bytes = total_bytes
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=total_bytes)

    def advance(self, done_bytes: int) -> None:
        """Count `done_bytes` more."""
        self._done_bytes += done_bytes
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], advance=done_bytes, records=f"{self.records:,} {self._unit}")
        elif not sys.stderr.isatty() and self._clock.monotonic() - self._printed_s >= PLAIN_EVERY_S:
            self._printed_s = self._clock.monotonic()
            complain(self._plain())

    def count_records(self, count: int) -> None:
        """Count `count` more records, with `of_records`."""
        self.records += count
        self.advance(count)

    def reach(self, records: int, done_bytes: int) -> None:
        """Set both counts to these totals."""
        self.records = records
        self.advance(done_bytes - self._done_bytes)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the bar away while the command prints to the same terminal."""
        if self._bar is None or not self._shares_terminal:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not (self._reads_stdin and sys.stdin.isatty()):
            self._bar = _bar(of_records=self._of_records)
            self._bar.add_task(self._title, total=self._total_bytes, records="")
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _plain(self) -> str:
        text = _records_text if self._of_records else size_text
        total = "" if self._total_bytes is None else f" of {text(self._total_bytes)}"
        return f"{self._title}: {self.records:,} {self._unit}, {text(self._done_bytes)}{total}"


def _records_text(count: float) -> str:
    return f"{count:,.0f} records"


def _bar(*, of_records: bool) -> Bar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as RichProgress

    amount: tuple[ProgressColumn, ...] = (DownloadColumn(), TransferSpeedColumn())

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        *((MofNCompleteColumn(),) if of_records else amount),
        TimeRemainingColumn(),
        TextColumn("{task.fields[records]}"),
        console=Console(stderr=True),
        transient=True,
    )
