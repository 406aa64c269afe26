"""Which records of a request go to which partition; each partition's share keeps their order.

A record goes where its `partition` says, else where its key says (`partitioner`), else to the request's own keyless
partition. When all of a request goes to one partition, which is the common case, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.services.broker.write.admission import Admitted
from tidelog.storage.errors import Invalid
from tidelog.storage.partitioner import NO_PARTITION, partitions_of


@dataclass(frozen=True)
class Share:
    """What one partition gets of a request. `held_bytes` is the memory these records keep alive, `payload_bytes` those
    of their keys and values."""

    partition: int
    records: pa.Table
    held_bytes: int
    payload_bytes: int
    timestamp_ms_max: int


def whole(partition: int, admitted: Admitted, held_bytes: int) -> Share:
    """All of a request for one partition; nothing is copied."""
    payload_bytes = int(admitted.payload_bytes.sum())
    return Share(partition, admitted.records, held_bytes, payload_bytes, int(admitted.timestamps_ms.max()))


def route(
    admitted: Admitted, named: Any, *, held_bytes: int, partition_count: int, keyless_partition: int
) -> Sequence[Share]:
    """The shares of a request, ascending by partition. `named` (int32 or None) goes with the records row by row.
    Raises `Invalid` for a partition that is not there."""
    keys = admitted.records.column("key")
    if named is None and (partition_count == 1 or keys.null_count == len(keys)):
        return (whole(keyless_partition, admitted, held_bytes),)
    partitions = _partitions(keys, named, partition_count, keyless_partition)
    first = int(partitions[0])
    if (partitions == first).all():
        return (whole(first, admitted, held_bytes),)
    return _split(admitted, partitions)


def check_all_name(named: Any, partition: int) -> None:
    """`Invalid` if a row names another partition than the one the whole request is for."""
    if named is None:
        return
    others = np.flatnonzero(_named_or(named, partition) != partition)
    if len(others):
        raise Invalid(
            f"a record names another partition than {partition}, which the request is for",
            field="partition",
            record=int(others[0]),
        )


def _named_or(named: Any, default: int) -> npt.NDArray[np.int32]:
    numbers: npt.NDArray[np.int32] = (named.fill_null(default) if named.null_count else named).to_numpy()
    return numbers


def _partitions(keys: Any, named: Any, partition_count: int, keyless_partition: int) -> npt.NDArray[np.int32]:
    by_key = partitions_of(keys, partition_count)
    chosen: npt.NDArray[np.int32] = np.where(by_key == NO_PARTITION, np.int32(keyless_partition), by_key)
    if named is None:
        return chosen
    _check_named(named, partition_count)
    unnamed = np.asarray(named.is_null())
    return np.where(unnamed, chosen, _named_or(named, 0)).astype(np.int32)


def _check_named(named: Any, partition_count: int) -> None:
    numbers = _named_or(named, 0)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= partition_count))
    if len(wrong):
        raise Invalid(
            f"there is no partition {int(numbers[wrong[0]])}: the topic has 0 to {partition_count - 1}",
            field="partition",
            record=int(wrong[0]),
        )


def _split(admitted: Admitted, partitions: npt.NDArray[np.int32]) -> Sequence[Share]:
    order = np.argsort(partitions, kind="stable")
    gathered = admitted.records.combine_chunks().take(order)
    numbers, firsts = np.unique(partitions[order], return_index=True)
    ends = np.append(firsts[1:], len(order))
    payload_bytes = np.add.reduceat(admitted.payload_bytes[order], firsts)
    latest = np.maximum.reduceat(admitted.timestamps_ms[order], firsts)
    beside_payload = (gathered.nbytes - int(admitted.payload_bytes.sum())) / len(order)  # of a record, on average
    columns = (numbers.tolist(), firsts.tolist(), ends.tolist(), payload_bytes.tolist(), latest.tolist())
    shares = []
    for number, first, end, payload, timestamp_ms in zip(*columns, strict=True):
        held_bytes = payload + int(beside_payload * (end - first))
        shares.append(Share(number, gathered.slice(first, end - first), held_bytes, payload, timestamp_ms))
    return tuple(shares)
