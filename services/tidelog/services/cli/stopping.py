"""Lets a command that works in steps stop between two of them."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self


class StopBetweenSteps:
    """While it is entered, the first Ctrl-C (or SIGTERM, which `main` turns into it) only sets `asked`. The command
    then ends its step, saves, and raises `KeyboardInterrupt`. A second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Self:
        signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()

    def raise_if_asked(self) -> None:
        """Raises `KeyboardInterrupt` if the command was asked to stop."""
        if self.asked:
            raise KeyboardInterrupt

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
