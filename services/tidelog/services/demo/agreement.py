"""A fingerprint of a partition that only the same records in the same order give.

Two hashes run over all values and keys: one over their bytes, one over their lengths, so that it does not matter in
which batches the records come, and does matter where each of them begins and ends. A lost, repeated, swapped or
altered record changes it.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = "pa.Array[Any]"
DIGEST_BYTES = 12


class Fingerprint:
    """Feed it batches in order; `hexdigest` may be asked at any time."""

    def __init__(self) -> None:
        self.records = 0
        self.value_bytes = 0
        self._bytes = {name: hashlib.blake2b(digest_size=DIGEST_BYTES) for name in ("key", "value")}
        self._lengths = {name: hashlib.blake2b(digest_size=DIGEST_BYTES) for name in ("key", "value")}

    def update(self, keys: Column, values: Column) -> None:
        """The next records. A null key counts as an empty one."""
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
