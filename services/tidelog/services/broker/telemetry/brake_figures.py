"""How far archiving is behind, and how producers are slowed because of it, as figures for exporters."""

from __future__ import annotations

from dataclasses import dataclass

SLOW_SHARE = 0.75
"""Producers are slowed from this share of the limit on."""


def pressure(debt_bytes: int, bytes_max: int) -> float:
    """0 while producers are not slowed, 1 at the limit, in proportion between. Pure."""
    return min(1.0, max(0.0, (debt_bytes / bytes_max - SLOW_SHARE) / (1 - SLOW_SHARE)))


@dataclass(frozen=True)
class BrakeFigures:
    """The debt and its limit now, and the produces that were `delayed` and `refused` since the broker started.
    `held_bytes`: of the largest log that damage holds, which counts alone."""

    debt_bytes: int = 0
    bytes_max: int = 1
    delayed: int = 0
    refused: int = 0
    held_bytes: int = 0

    @property
    def pressure(self) -> float:
        """Of the shard whose producers are slowed most."""
        return pressure(max(self.debt_bytes, self.held_bytes), self.bytes_max)
