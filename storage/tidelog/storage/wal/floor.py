"""The floor of a write-ahead log: the entry where the log begins. The shard's manifest holds it, because one append
both lists archived records and moves the floor beyond their entries. This seam keeps the log apart from manifests."""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec


class Floor(msgspec.Struct, frozen=True, array_like=True):
    """The log of a shard begins at entry `number`; `epoch` is the highest epoch below it."""

    number: Annotated[int, msgspec.Meta(ge=0)] = 0
    epoch: Annotated[int, msgspec.Meta(ge=0)] = 0


BEGINNING = Floor()
"""Of a log that was never archived."""


class Floors(Protocol):
    """The source of a log's floor (`manifests.shard_log`)."""

    async def floor(self) -> Floor:
        """The floor at some moment of this call. It only rises. Raises `Unavailable`, `Corrupt`."""
        ...
