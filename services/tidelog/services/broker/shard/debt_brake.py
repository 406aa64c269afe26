"""Slows producers while archiving is far behind, so that the write-ahead log cannot grow without a bound.

The **debt** of a broker is the stored bytes of the WAL entries that are not archived, of all shards that it leads:

    below three quarters of `archiver.debt.max.bytes`   produces are not slowed
    from there on                                       each produce waits first, the longer the larger the debt
    at the limit                                        produces get `Overloaded`, before anything is buffered

- A wait is a timer: it holds no thread, and it takes at most `DELAY_S_MAX`.
- The brake ends by itself when the debt falls. It never discards a record that was accepted.
- A batch that an idempotent producer sends again is answered at the limit, too, because it appends nothing.
- The debt may exceed the limit by what was buffered before, which `buffer.max.bytes` bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidelog.services.broker.telemetry.brake_figures import BrakeFigures
from tidelog.storage.errors import Overloaded
from tidelog.storage.runtime import Clock

DELAY_S_MAX = 1.0
"""The longest wait of a produce, just below the limit."""
RETRY_AFTER_S = 1.0

_log = logging.getLogger(__name__)


class DebtBrake:
    """`debt_bytes` gives the debt now."""

    def __init__(self, debt_bytes: Callable[[], int], bytes_max: int, clock: Clock) -> None:
        self._debt_bytes = debt_bytes
        self._bytes_max = bytes_max
        self._clock = clock
        self._delayed = 0
        self._refused = 0
        self._braking = False

    def figures(self) -> BrakeFigures:
        return BrakeFigures(self._debt_bytes(), self._bytes_max, self._delayed, self._refused)

    def observe(self) -> BrakeFigures:
        """The figures now. Logs when the brake begins and ends; the archive loop calls it in every step."""
        found = self.figures()
        if self._braking != (found.pressure > 0):
            self._braking = found.pressure > 0
            began_or_ended = "produces are delayed" if self._braking else "produces are no longer delayed"
            _log.warning("%s: %s", began_or_ended, _facts(found))
        return found

    def trouble(self) -> str:
        """How producers are slowed now; empty if they are not."""
        found = self.figures()
        if not found.pressure:
            return ""
        return f"produces are {'refused' if found.pressure >= 1 else 'delayed'}: {_facts(found)}"

    async def delay(self) -> None:
        """Wait as long as a produce has to wait now. At the limit it does not wait: `check` refuses it."""
        if 0 < (now := self.observe().pressure) < 1:
            self._delayed += 1
            await self._clock.sleep(now * DELAY_S_MAX)

    def check(self) -> None:
        """Raises `Overloaded` at the limit."""
        found = self.observe()
        if found.pressure < 1:
            return
        self._refused += 1
        raise Overloaded(f"{_facts(found)}. Retry later; the request was not applied", retry_after_s=RETRY_AFTER_S)


def _facts(found: BrakeFigures) -> str:
    return (
        f"{found.debt_bytes:,} of {found.bytes_max:,} bytes (archiver.debt.max.bytes) of the write-ahead log are not "
        "archived yet"
    )
