"""A progress bar on stderr for long work, if a person watches; otherwise nothing at all."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """Counts bytes of `total_bytes` (None: unknown), and shows them when stderr is a terminal; for a command that reads
    stdin only if that is none, since a person types there."""

    def __init__(self, title: str, total_bytes: int | None, unit: str = "records", *, reads_stdin: bool = True) -> None:
        self.records = 0
        self._title = title
        self._unit = unit
        self._total_bytes = total_bytes
        self._reads_stdin = reads_stdin
        self._bar: Bar | None = None

    @property
    def shows(self) -> bool:
        """Whether anybody watches."""
        return self._bar is not None

    def expect(self, total_bytes: int) -> None:
        """There are so many bytes in all, by an estimate."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=total_bytes)

    def advance(self, read_bytes: int) -> None:
        """So many more bytes are done."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], advance=read_bytes, records=f"{self.records:,} {self._unit}")

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not (self._reads_stdin and sys.stdin.isatty()):
            self._bar = _bar()
            self._bar.add_task(self._title, total=self._total_bytes, records="")
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[records]}"),
        console=Console(stderr=True),
        transient=True,
    )
