"""Lets the harness step a broker's wall clock.

It changes `SystemClock.now_ms`, Tidelog's only wall clock, by the milliseconds in the file
``$CHAOS_CLOCKS/$TIDELOG_PORT``, if that exists. The monotonic clock stays as it is, as with a real step. The times of
log lines and of signatures of requests to the store stay as they are, too.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.storage.runtime import SystemClock

CLOCKS = "CHAOS_CLOCKS"
LOOK_S = 0.05


class _SteppedClock:
    """Reads the file at most every `LOOK_S`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._true_ms = SystemClock.now_ms
        self._looked_at_s = 0.0
        self._step_ms = 0

    def now_ms(self, clock: SystemClock) -> int:
        if clock.monotonic() - self._looked_at_s > LOOK_S:
            self._looked_at_s = clock.monotonic()
            self._step_ms = int(self._path.read_text()) if self._path.exists() else 0
        return self._true_ms(clock) + self._step_ms


def step_wall_clock() -> None:
    """Make the wall clock of this process follow its file."""
    stepped = _SteppedClock(Path(os.environ[CLOCKS]) / os.environ.get("TIDELOG_PORT", "none"))

    def now_ms(self: SystemClock) -> int:
        return stepped.now_ms(self)

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]
