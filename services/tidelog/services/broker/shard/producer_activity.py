"""Tells background work whether producers are active, so that it leaves them a processor."""

from __future__ import annotations

from tidelog.storage.runtime import Clock

ACTIVE_S = 1.0
"""Producers are active for so long after their last append."""


class ProducerActivity:
    """The appends to all shards of a broker. Threads may read `active`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._appended_at_s: float | None = None

    def appended(self) -> None:
        """Records were accepted just now."""
        self._appended_at_s = self._clock.monotonic()

    @property
    def active(self) -> bool:
        return self._appended_at_s is not None and self._clock.monotonic() - self._appended_at_s < ACTIVE_S
