"""Collects keys with the row each was last seen in, and splits them by the key's hash until one part fits in memory.

Equal keys have equal hashes, so the rows that hold an older record of a key can be found part by part: a Grace hash
aggregation (Kitsuregawa 1983), as databases use to group more than fits in memory.

    add(keys, rows) ... ─▶ 64 parts by 6 bits of the hash, as Arrow IPC ─▶ a part still too large: 64 by the next 6 ...
                                                        └▶ a part that fits: superseded rows, by the keys themselves

A hash only selects the part of a key. Within a part whole keys are compared, so no collision can lose a record. The
parts share a file without a name, which vanishes with the process. Keys that fit in memory are not written at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.storage.partitioner import murmur2
from tidelog.storage.upkeep.row_set import Rows
from tidelog.storage.upkeep.spill_file import SpillFile

Keys: TypeAlias = "pa.Array[Any]"
Hashes = npt.NDArray[np.uint32]
HashKeys = Callable[[Keys], Hashes]

PART_BITS = 6
PARTS = 1 << PART_BITS
HASH_BITS = 32

_FIELDS: list[pa.Field[Any]] = [pa.field("key", pa.binary()), pa.field("row", pa.int64())]
_SCHEMA = pa.schema(_FIELDS)


def spread_hash(keys: Keys) -> Hashes:
    """murmur2 with its bits mixed again as in MurmurHash3, because all keys of a partition agree in murmur2 modulo the
    number of partitions."""
    hashes = murmur2(keys)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes ^= hashes >> np.uint32(shift)
        hashes *= np.uint32(factor)
    hashes ^= hashes >> np.uint32(16)
    return hashes


def newest_rows(keys: Keys | pa.ChunkedArray[Any], rows: Rows) -> tuple[Keys, Rows, Rows]:
    """The distinct `keys`, the last row of each, and all other rows. The rows of a key ascend."""
    encoded: Any = keys.dictionary_encode()
    chunks: list[Any] = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    distinct = chunks[0].dictionary if chunks else pa.array([], pa.binary())
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]) if chunks else np.empty(0, np.int32)
    newest = np.empty(len(distinct), np.int64)
    newest[codes] = rows  # if a place is assigned several times, the last one stays
    return distinct, newest, rows[newest[codes] != rows]


class KeySpill:
    """Holds up to `memory_bytes` of keys and rows in memory, and the rest in `folder`. All its keys agree in the first
    `bits_used` bits of the hash. Raises `Unavailable` if the folder cannot be written to."""

    def __init__(
        self, folder: Path, memory_bytes: int, hash_keys: HashKeys = spread_hash, *, bits_used: int = 0
    ) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._hash_keys = hash_keys
        self._bits_used = bits_used
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._file: SpillFile | None = None
        self._parts = [_Part() for _ in range(PARTS)]

    def add(self, keys: Keys, rows: Rows) -> None:
        """`keys` are distinct and not null; their rows are greater than those added before."""
        batch = pa.record_batch([keys, pa.array(rows)], schema=_SCHEMA)
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes > self._memory_bytes:
            self._file = self._file or SpillFile(self._folder)
            self._spill(self._file)

    def superseded(self) -> Iterator[Rows]:
        """The rows whose key has a later row, one part at a time. Nothing may be added afterwards."""
        if self._file is None:
            yield _superseded(pa.Table.from_batches(self._held, _SCHEMA))
            return
        self._spill(self._file)
        for part in self._parts:
            yield from self._superseded_of(self._file, part)
        self.close()

    def close(self) -> None:
        """Free the disk. Calling it again does nothing."""
        if self._file is not None:
            self._file.close()

    def _superseded_of(self, file: SpillFile, part: _Part) -> Iterator[Rows]:
        bits_used = self._bits_used + PART_BITS
        if part.size_bytes <= self._memory_bytes or bits_used + PART_BITS > HASH_BITS:
            yield _superseded(pa.Table.from_batches(part.batches(file), _SCHEMA))
            return
        finer = KeySpill(self._folder, self._memory_bytes, self._hash_keys, bits_used=bits_used)
        try:
            for batch in part.batches(file):
                finer.add(batch.column("key"), batch.column("row").to_numpy())
            yield from finer.superseded()
        finally:
            finer.close()

    def _spill(self, file: SpillFile) -> None:
        if not self._held:
            return
        batch = pa.Table.from_batches(self._held, _SCHEMA).combine_chunks().to_batches()[0]
        self._held, self._held_bytes = [], 0
        shift = np.uint32(HASH_BITS - PART_BITS - self._bits_used)
        places = (self._hash_keys(batch.column("key")) >> shift & np.uint32(PARTS - 1)).astype(np.uint8)
        order = np.argsort(places, kind="stable")
        sorted_batch = batch.take(order)
        ends = np.searchsorted(places[order], np.arange(PARTS), side="right").tolist()
        for part, begin, end in zip(self._parts, [0, *ends[:-1]], ends, strict=True):
            if end > begin:
                part.write(file, sorted_batch.slice(begin, end - begin))


def _superseded(part: pa.Table) -> Rows:
    _, _, rest = newest_rows(part.column("key"), part.column("row").to_numpy())
    return rest


class _Part:
    """Record batches in a file, at `_places`. `size_bytes` is their size in memory."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []
        self.size_bytes = 0

    def write(self, file: SpillFile, batch: pa.RecordBatch) -> None:
        message = batch.serialize()
        self._places.append((file.tell(), message.size))
        file.write(memoryview(message))
        self.size_bytes += batch.nbytes

    def batches(self, file: SpillFile) -> Iterator[pa.RecordBatch]:
        """The written batches in order, mapped and not copied."""
        messages = pa.py_buffer(file.mapped()) if self._places else None
        for begin, length in self._places:
            assert messages is not None
            yield pa.ipc.read_record_batch(messages.slice(begin, length), _SCHEMA)
