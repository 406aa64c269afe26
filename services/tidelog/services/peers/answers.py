"""The JSON answers of a peer, as far as `Peers` needs them."""

from __future__ import annotations

import msgspec


class AppendedAnswer(msgspec.Struct):
    """Where the records of one partition went."""

    partition: int
    base_offset: int | None
    count: int
    timestamp: int
    duplicate: bool = False


class ProduceAnswer(msgspec.Struct):
    """Of ``POST …/records``; a request for one partition has one."""

    partitions: tuple[AppendedAnswer]


class OffsetAnswer(msgspec.Struct):
    """Of ``GET …/offset``."""

    offset: int


class LogStartAnswer(msgspec.Struct):
    """Of ``POST …/delete-records``."""

    log_start_offset: int
