"""How many idempotent producers a broker remembers, and for how long.

A producer is forgotten once it was silent for ``producer.id.expiration.ms``, or when the broker remembers more than
``producer.ids.max`` (the one silent for longest goes first). A producer that was forgotten may begin at any sequence: a
batch that it sends again so late is appended again.

The expiry counts from the last batch, by the monotonic clock. Of a batch found in the bucket it counts from when it was
found: that is later than it should be, never sooner.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from tidelog.storage.runtime import Clock


class Forgetful(Protocol):
    """A table of producers."""

    def forget(self, producer_id: str) -> None:
        """Drop a producer."""
        ...


class ProducerMemory:
    """The producers of all tables of a broker, the one silent for longest first."""

    def __init__(self, clock: Clock, expiration_s: float, producers_max: int) -> None:
        self._clock = clock
        self._expiration_s = expiration_s
        self._producers_max = producers_max
        self._last_s: OrderedDict[tuple[Forgetful, str], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last_s)

    def used(self, table: Forgetful, producer_id: str) -> None:
        """A batch of this producer is remembered in `table` now. Others may be forgotten for it."""
        key, now_s = (table, producer_id), self._clock.monotonic()
        self._last_s[key] = now_s
        self._last_s.move_to_end(key)
        while len(self._last_s) > self._producers_max or self._oldest_s() < now_s - self._expiration_s:
            (oldest, oldest_id), _ = self._last_s.popitem(last=False)
            oldest.forget(oldest_id)

    def expired(self, table: Forgetful, producer_id: str) -> bool:
        last_s = self._last_s.get((table, producer_id))
        return last_s is not None and last_s < self._clock.monotonic() - self._expiration_s

    def dropped(self, table: Forgetful, producer_id: str) -> None:
        """`table` has forgotten this producer by itself."""
        self._last_s.pop((table, producer_id), None)

    def _oldest_s(self) -> float:
        return next(iter(self._last_s.values()))
