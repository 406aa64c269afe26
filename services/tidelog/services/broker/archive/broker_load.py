"""Tells upkeep what else this broker does: how well merges may compress, and when large ones may begin."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.storage.runtime import Clock
from tidelog.storage.upkeep.rules import Load

IDLE_AFTER_S = 600.0
"""A broker is idle after so long without other work: no producers wait, no pass of the archiver runs, and archiving has
not fallen behind."""


class BrokerLoad:
    """`busy`: whether other work needs the processor now. `observe` it at least every second."""

    def __init__(self, busy: Callable[[], bool], clock: Clock) -> None:
        self._busy = busy
        self._clock = clock
        self._quiet_since_s = clock.monotonic()
        self._was_idle = False

    def now(self) -> Load:
        if self._busy():
            return Load.BUSY
        return Load.IDLE if self._quiet_s >= IDLE_AFTER_S else Load.QUIET

    def observe(self) -> bool:
        """Returns whether the broker has become idle since the last call: merges that waited are due now."""
        if self._busy():
            self._quiet_since_s = self._clock.monotonic()
        was_idle, self._was_idle = self._was_idle, self.now() is Load.IDLE
        return self._was_idle and not was_idle

    @property
    def _quiet_s(self) -> float:
        return self._clock.monotonic() - self._quiet_since_s
