"""Slows producers while archiving is far behind, so that the write-ahead log cannot grow without a bound.

The **debt** of a broker is the stored bytes of the WAL entries that are not archived, of all shards that it leads and
that no damage holds:

    below three quarters of `archiver.debt.max.bytes`   produces are not slowed
    from there on                                       each produce waits first, the longer the larger the debt
    at the limit                                        produces get `Overloaded`, before anything is buffered

- A wait is a timer: it holds no thread, and it takes at most `DELAY_S_MAX`.
- The brake ends by itself when the debt falls. It never discards a record that was accepted.
- A batch that an idempotent producer sends again is answered at the limit, too, because it appends nothing.
- Damage keeps the entries of a shard, so no archiving lowers its debt until it is repaired. Such a **held log** counts
  alone: its own producers are slowed and refused by its bytes, all that it keeps, and the others are not.
- The debt may exceed the limit by what was buffered before, which `buffer.max.bytes` bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tidelog.services.broker.telemetry.brake_figures import BrakeFigures, pressure
from tidelog.storage.errors import Corrupt, NewerFormat, Overloaded
from tidelog.storage.runtime import Clock

DELAY_S_MAX = 1.0
"""The longest wait of a produce, just below the limit."""
RETRY_AFTER_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldLog:
    """The bytes of a write-ahead log that cannot be archived or deleted because of `fault`."""

    bytes: int
    fault: Corrupt | NewerFormat


class DebtBrake:
    """`debt_bytes` gives the debt now, `held_logs` the held logs by shard."""

    def __init__(
        self,
        debt_bytes: Callable[[], int],
        bytes_max: int,
        clock: Clock,
        held_logs: Callable[[], Mapping[int, HeldLog]] = dict,
    ) -> None:
        self._debt_bytes = debt_bytes
        self._held_logs = held_logs
        self._bytes_max = bytes_max
        self._clock = clock
        self._delayed = 0
        self._refused = 0
        self._braking = False

    def figures(self) -> BrakeFigures:
        held_bytes = max((log.bytes for log in self._held_logs().values()), default=0)
        return BrakeFigures(self._debt_bytes(), self._bytes_max, self._delayed, self._refused, held_bytes)

    def observe(self) -> BrakeFigures:
        """The figures now. Logs when the brake begins and ends; the archive loop calls it in every step."""
        found = self.figures()
        if self._braking != (found.pressure > 0):
            self._braking = found.pressure > 0
            began_or_ended = "produces are delayed" if self._braking else "produces are no longer delayed"
            _log.warning("%s: %s", began_or_ended, self.trouble() or self._facts(found.debt_bytes))
        return found

    def trouble(self) -> str:
        """How producers are slowed now; empty if they are not."""
        causes = self._causes(self._held_logs().keys())
        return "; ".join(f"produces are {'refused' if share >= 1 else 'delayed'}: {text}" for share, text in causes)

    async def delay(self, shards: Collection[int] = ()) -> None:
        """Wait as long as a produce to `shards` has to wait now. At the limit it does not wait: `check` refuses it."""
        self.observe()
        causes = self._causes(shards)
        if causes and causes[0][0] < 1:
            self._delayed += 1
            await self._clock.sleep(causes[0][0] * DELAY_S_MAX)

    def check(self, shards: Collection[int] = ()) -> None:
        """Raises `Overloaded` at the limit of a produce to `shards`."""
        self.observe()
        causes = self._causes(shards)
        if causes and causes[0][0] >= 1:
            self._refused += 1
            text = f"{causes[0][1]}. Retry later; the request was not applied"
            raise Overloaded(text, retry_after_s=RETRY_AFTER_S)

    def _causes(self, shards: Collection[int]) -> Sequence[tuple[float, str]]:
        """How strongly, and why, produces to `shards` are slowed: the strongest cause first, none if they are not."""
        debt_bytes = self._debt_bytes()
        found = []
        if (share := pressure(debt_bytes, self._bytes_max)) > 0:
            found.append((share, self._facts(debt_bytes)))
        for shard, log in self._held_logs().items():
            if shard in shards and (share := pressure(log.bytes, self._bytes_max)) > 0:
                text = f"shard {shard}: {self._facts(log.bytes)} and cannot be until this is repaired: {log.fault}"
                found.append((share, text))
        return sorted(found, reverse=True)

    def _facts(self, unarchived_bytes: int) -> str:
        return (
            f"{unarchived_bytes:,} of {self._bytes_max:,} bytes (archiver.debt.max.bytes) of the write-ahead log are "
            "not archived yet"
        )
