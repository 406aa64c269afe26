"""Decides whether the generator, HTTP and Spark agree on the records and on the results of queries.

A `Fingerprint` stands for the records of a partition in their order. Two hashes run over all values and keys: one over
their bytes, one over their lengths. So the batches in which records come do not matter, but the boundaries of each
record do. A lost, repeated, swapped or altered record changes the fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = "pa.Array[Any]"
DIGEST_BYTES = 12


class Fingerprint:
    """Takes batches in order. `hexdigest` may be called at any time."""

    def __init__(self) -> None:
        self.records = 0
        self.value_bytes = 0
        self._bytes = {name: hashlib.blake2b(digest_size=DIGEST_BYTES) for name in ("key", "value")}
        self._lengths = {name: hashlib.blake2b(digest_size=DIGEST_BYTES) for name in ("key", "value")}

    def update(self, keys: Column, values: Column) -> None:
        """Add the next records. A null key counts as an empty one."""
        self.records += len(values)
        self.value_bytes += self._feed("value", values)
        self._feed("key", keys)

    def hexdigest(self) -> str:
        whole = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for name in ("key", "value"):
            whole.update(self._bytes[name].digest() + self._lengths[name].digest())
        return whole.hexdigest()

    def _feed(self, name: str, column: Column) -> int:
        if len(column) == 0:
            return 0
        filled: Column = pc.coalesce(column.cast(pa.binary()), cast(Any, pa.scalar(b"", pa.binary())))
        _, offsets_buffer, data = filled.buffers()
        assert offsets_buffer is not None
        offsets = np.frombuffer(memoryview(offsets_buffer), np.int32)[filled.offset : filled.offset + len(filled) + 1]
        self._lengths[name].update(np.diff(offsets).tobytes())
        first, last = int(offsets[0]), int(offsets[-1])
        if data is not None:
            self._bytes[name].update(data.slice(first, last - first))
        return last - first


@dataclass(frozen=True)
class Agreement:
    """One number from three sources. None means that the source does not give it."""

    what: str
    generator: int | str
    http: int | str | None = None
    spark: int | str | None = None

    @property
    def agree(self) -> bool:
        return all(number in (None, self.generator) for number in (self.http, self.spark))


def compare_fingerprints(expected: Sequence[Fingerprint], fetched: Sequence[Fingerprint]) -> list[Agreement]:
    """The number of records of each partition, and the fingerprint of their bytes and order."""
    found = []
    for partition, (ours, theirs) in enumerate(zip(expected, fetched, strict=True)):
        found.append(Agreement(f"partition {partition}: records", ours.records, theirs.records))
        found.append(Agreement(f"partition {partition}: fingerprint", ours.hexdigest(), theirs.hexdigest()))
    return found


def compare_rows(title: str, expected: Sequence[Sequence[object]], found: Sequence[Sequence[object]]) -> Agreement:
    """The rows of a query as one number: how many of the expected rows came, in their order."""
    same = sum(tuple(ours) == tuple(theirs) for ours, theirs in zip(expected, found, strict=False))
    surplus = max(0, len(found) - len(expected))
    return Agreement(f"{title}: rows", len(expected), spark=same - surplus)
