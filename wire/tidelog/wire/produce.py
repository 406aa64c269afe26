"""The answer to a produce, ``POST …/records``."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from tidelog.wire.counts import Count


class AppendedRecords(msgspec.Struct, frozen=True):
    """Where the records of one partition went. `base_offset` is None for ``acks=0``; `timestamp` in ms since 1970 UTC;
    `duplicate` is there, and True, only if the log held them already."""

    partition: Count
    base_offset: Count | None
    count: Count
    timestamp: int
    duplicate: bool | UnsetType = UNSET


class ProduceAnswer(msgspec.Struct, frozen=True):
    """`partitions` holds one element for each partition that got records, in order."""

    topic: str
    partitions: tuple[AppendedRecords, ...]
