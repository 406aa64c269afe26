"""The most memory that a piece of work takes: Arrow's pool, numpy and Python. Spill files do not count, because the
system decides how much of them to cache."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa


@dataclass
class Peaks:
    arrow_bytes: int = 0
    python_bytes: int = 0


@contextmanager
def peaks() -> Iterator[Peaks]:
    """Filled in at the end, minus the memory at the beginning."""
    found, before = Peaks(), pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        yield found
        found.arrow_bytes = counted.max_memory() or 0
        found.python_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
