"""The records that every client's program produces, numbered 0, 1, 2 …"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

PARTITIONS = 4
MORE_PARTITIONS = 6
EACH = 20
"""Records of one codec and acks."""
BASE_MS = int(time.time() - 3_600) * 1000
"""The time of record 0: recent, because retention removes old records."""
CONFIGS = {"max.message.bytes": "2000000", "retention.ms": "86400000"}

Row = Sequence[Any]
"""A record as the programs print it: partition, offset, timestamp, key, value, headers."""


def content(n: int) -> list[object]:
    """Record `n` as a row without its offset."""
    key = None if n % 5 == 0 else f"k{n}"
    value = None if n % 7 == 0 else f"v{n}"
    return [n % PARTITIONS, BASE_MS + n, key, value, ["n", str(n), "empty", None]]


def without_offset(row: Row) -> list[object]:
    return [row[0], *row[2:]]


def assert_complete(rows: Sequence[Row], sent: int, content: Callable[[int], Row] = content) -> None:
    """Each of the `sent` records is there once, in any order: a client does not wait for what it sends with acks=0."""
    assert sorted(map(without_offset, rows), key=_time) == [content(n) for n in range(sent)]
    for partition in range(PARTITIONS):
        offsets = [row[1] for row in rows if row[0] == partition]
        assert offsets == list(range(sent // PARTITIONS)), f"of partition {partition}"


def _time(row: Row) -> int:
    found: int = row[1]
    return found
