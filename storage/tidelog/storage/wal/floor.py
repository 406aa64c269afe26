"""The floor of a write-ahead log: the entry where the log begins. The shard's manifest holds it, because one append
both lists archived records and moves the floor beyond their entries. This seam keeps the log apart from manifests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Floor:
    """The log of a shard begins at entry `number`; `epoch` is the highest epoch below it."""

    number: int = 0
    epoch: int = 0


BEGINNING = Floor()
"""Of a log that was never archived."""


class Floors(Protocol):
    """The source of a log's floor (`manifests.shard_log`)."""

    async def floor(self) -> Floor:
        """The floor at some moment of this call. It only rises. Raises `Unavailable`, `Corrupt`."""
        ...
