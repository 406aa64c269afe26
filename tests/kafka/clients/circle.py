"""The records that every client's program produces: the program sends number 0, 1, 2 … and each has a known place."""

from __future__ import annotations

import time

PARTITIONS = 4
BASE_MS = int(time.time() - 3_600) * 1000
"""The time of record 0: recent, because retention removes old records."""


def record(n: int) -> list[object]:
    """Record `n` as the programs print it: partition, offset, timestamp, key, value, headers."""
    key = None if n % 5 == 0 else f"k{n}"
    value = None if n % 7 == 0 else f"v{n}"
    return [n % PARTITIONS, n // PARTITIONS, BASE_MS + n, key, value, ["n", str(n), "empty", None]]
