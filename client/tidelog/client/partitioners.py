"""How a producer chooses the partition of a record with a key.

`murmur2`, the default, is Kafka's: Kafka's Java clients put the same key into the same partition. `crc32` is the one of
librdkafka, so of confluent-kafka-python. A program can also give a function of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.storage.errors import Invalid
from tidelog.storage.partitioner import NO_PARTITION, partitions_of

Partitioner: TypeAlias = Literal["murmur2", "crc32"] | Callable[[bytes, int], int]
"""By name, or a function of a key and the number of partitions. A function, and crc32, run Python for each key."""
Partitions: TypeAlias = Callable[["pa.ChunkedArray[pa.BinaryScalar]", int], npt.NDArray[np.int32]]
"""The partition of each key of a column, `NO_PARTITION` where it is null."""


def partitions_by(partitioner: Partitioner) -> Partitions:
    """`partitioner` as a function of whole columns. Raises `Invalid` for an unknown name."""
    if partitioner == "murmur2":
        return partitions_of
    if partitioner == "crc32":
        return _by_key(lambda key, count: zlib.crc32(key) % count)
    if callable(partitioner):
        return _by_key(partitioner)
    raise Invalid(f"partitioner is murmur2, crc32 or a function, not {partitioner!r}", field="partitioner")


def _by_key(choose: Callable[[bytes, int], int]) -> Partitions:
    def partitions(keys: pa.ChunkedArray[pa.BinaryScalar], count: int) -> npt.NDArray[np.int32]:
        return np.array([_checked(choose, key, count) for key in keys.to_pylist()], np.int32)

    return partitions


def _checked(choose: Callable[[bytes, int], int], key: bytes | None, count: int) -> int:
    if key is None:
        return NO_PARTITION
    partition = choose(key, count)
    if not 0 <= partition < count:
        raise Invalid(
            f"the partitioner chose partition {partition} for key {key[:80]!r}: there are 0 to {count - 1}",
            field="partitioner",
        )
    return partition
