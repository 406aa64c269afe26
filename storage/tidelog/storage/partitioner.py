"""The partition of a key: Kafka's murmur2, over whole Arrow arrays.

A record with a key goes to ``toPositive(murmur2(key)) % partitions``, as in the default partitioner of Kafka's clients,
so that Kafka's clients and Tidelog's agree on a key's partition. The hash is that of
``org.apache.kafka.common.utils.Utils.murmur2`` (Austin Appleby's MurmurHash2, seed 0x9747b28c).

Each numpy step hashes four bytes of every key. A step costs about the same for one key as for a thousand, so the few
keys that are much longer than the others are finished one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NO_PARTITION = -1
"""The result of `partitions_of` for a record without a key."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_FEW_KEYS = 16

_UInt32s = npt.NDArray[np.uint32]
_Int64s = npt.NDArray[np.int64]


def partitions_of(keys: pa.ChunkedArray[pa.BinaryScalar], partition_count: int) -> npt.NDArray[np.int32]:
    """The partition of each key, `NO_PARTITION` where it is null."""
    chunks = [_partitions_of_chunk(chunk, partition_count) for chunk in keys.chunks]
    return np.concatenate(chunks) if chunks else np.empty(0, np.int32)


def murmur2(keys: pa.Array[Any]) -> _UInt32s:
    """Kafka's murmur2 of each key of a binary array, as unsigned numbers. The value of a null is undefined."""
    data, starts, lengths = _key_bytes(keys)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    _mix_blocks(data, starts, lengths, hashes)
    _mix_tails(data, starts, lengths, hashes)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(_M)
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _partitions_of_chunk(keys: pa.Array[Any], partition_count: int) -> npt.NDArray[np.int32]:
    positive = murmur2(keys) & np.uint32(0x7FFFFFFF)
    partitions = (positive % np.uint32(partition_count)).astype(np.int32)
    if keys.null_count:
        partitions[np.asarray(keys.is_null())] = NO_PARTITION
    return partitions


def _key_bytes(keys: pa.Array[Any]) -> tuple[npt.NDArray[np.uint8], _Int64s, _Int64s]:
    """The data buffer of a binary array, and the start and length of each key in it (length 0 for a null)."""
    _, offsets_buffer, data_buffer = keys.buffers()
    if not len(keys) or offsets_buffer is None:
        return np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
    offsets = np.frombuffer(memoryview(offsets_buffer), np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(
        np.int64
    )
    data = np.frombuffer(memoryview(data_buffer), np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    if keys.null_count:
        lengths[np.asarray(keys.is_null())] = 0
    return data, offsets[:-1], lengths


def _mix_blocks(data: npt.NDArray[np.uint8], starts: _Int64s, lengths: _Int64s, hashes: _UInt32s) -> None:
    """Mix every whole block of four bytes into `hashes`, in place."""
    block_counts = lengths // 4
    if not len(block_counts) or not block_counts.max():
        return
    words = np.ndarray(shape=(len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))  # one word at every byte
    longest_first = np.argsort(-block_counts, kind="stable")
    ascending = block_counts[longest_first[::-1]]
    for block in range(int(block_counts.max())):
        active = longest_first[: len(ascending) - int(np.searchsorted(ascending, block, side="right"))]
        if len(active) <= _FEW_KEYS:
            for key in active.tolist():
                _mix_rest(words, int(starts[key]), block, int(block_counts[key]), hashes, key)
            return
        hashes[active] = hashes[active] * np.uint32(_M) ^ _mixed(words[starts[active] + 4 * block])


def _mix_rest(words: _UInt32s, start: int, block: int, block_count: int, hashes: _UInt32s, key: int) -> None:
    """Mix the blocks of one key from `block` on."""
    mixed = _mixed(words[start + 4 * block : start + 4 * block_count : 4])
    value = int(hashes[key])
    for word in mixed.tolist():
        value = (value * _M & _MASK) ^ word
    hashes[key] = value


def _mixed(words: _UInt32s) -> _UInt32s:
    mixed = words * np.uint32(_M)
    mixed ^= mixed >> np.uint32(24)
    return mixed * np.uint32(_M)


def _mix_tails(data: npt.NDArray[np.uint8], starts: _Int64s, lengths: _Int64s, hashes: _UInt32s) -> None:
    """Mix the one to three bytes after the last whole block, in place."""
    left = lengths & 3
    ends = starts + (lengths & ~3)
    for position in (2, 1, 0):
        having = np.flatnonzero(left > position)
        hashes[having] ^= data[ends[having] + position].astype(np.uint32) << np.uint32(8 * position)
    tailed = np.flatnonzero(left)
    hashes[tailed] *= np.uint32(_M)
