"""Checks the records of a produce request and splits them into shares, one per partition.

A record goes to the partition that it names; otherwise to the partition of its key (`partitioner`); otherwise to the
partition that the request takes for keyless records, in turn. A share keeps the order of the request. If all records go
to one partition, the common case, nothing is copied.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.produce import Draft, ProduceOptions
from tidelog.services.broker.topics import check_partition
from tidelog.services.broker.write.admission import Admitted, admit
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.partitioner import NO_PARTITION, partitions_of
from tidelog.storage.runtime import Clock


@dataclass(frozen=True)
class Share:
    """The records of a request for one partition. `held_bytes`: the memory that they keep alive; `payload_bytes`: of
    their keys and values; `rows` as in `Appended`; `sent` as in `PartDraft`."""

    partition: int
    records: pa.Table
    held_bytes: int
    payload_bytes: int
    timestamp_ms_max: int
    rows: npt.NDArray[np.int64] | None = None
    sent: bytes | None = None


ROUTED_INLINE_MAX = 20_000
"""Requests of more records are checked and split in a thread."""


class RequestSplitter:
    """Requests without keys take the partitions of a topic in turn."""

    def __init__(self, settings: Settings, clock: Clock, executor: Executor) -> None:
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    async def split(self, topic: Topic, draft: Draft, options: ProduceOptions) -> Sequence[Share]:
        """The shares of `draft`. Raises `Invalid`, `TooLarge`, `NotFound`; accepts no record."""
        if options.partition is not None or draft.records.num_rows <= ROUTED_INLINE_MAX:
            return self._split(topic, draft, options)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._split, topic, draft, options)

    def forget(self, topic: Topic) -> None:
        self._turns.pop(topic.topic_id, None)

    def _split(self, topic: Topic, draft: Draft, options: ProduceOptions) -> Sequence[Share]:
        records = admit(
            draft.records,
            topic.config,
            key_bytes_max=self._settings.key_max_bytes,
            now_ms=self._clock.now_ms(),
        )
        if options.partition is None:
            if options.producer or options.expected_offset is not None:
                raise Invalid(
                    "a request with expected_offset or a producer's sequence must name its partition", field="partition"
                )
            return route(
                records,
                draft.partitions,
                held_bytes=draft.body_bytes,
                partition_count=topic.partition_count,
                keyless_partition=next(self._turns[topic.topic_id]) % topic.partition_count,
            )
        check_partition(topic, options.partition)
        check_all_name(draft.partitions, options.partition)
        return (whole(options.partition, records, draft.body_bytes),)


def whole(partition: int, admitted: Admitted, held_bytes: int, sent: bytes | None = None) -> Share:
    """A share of all records; nothing is copied."""
    payload_bytes = int(admitted.payload_bytes.sum())
    latest_ms = int(admitted.timestamps_ms.max())
    return Share(partition, admitted.records, held_bytes, payload_bytes, latest_ms, sent=sent)


def route(
    admitted: Admitted, named: Any, *, held_bytes: int, partition_count: int, keyless_partition: int
) -> Sequence[Share]:
    """The shares of a request, ordered by partition. `named` (int32, or None): the partition that each record names.
    Raises `Invalid` for a partition that does not exist."""
    keys = admitted.records.column("key")
    if named is None and (partition_count == 1 or keys.null_count == len(keys)):
        return (whole(keyless_partition, admitted, held_bytes),)
    partitions = _partitions(keys, named, partition_count, keyless_partition)
    first = int(partitions[0])
    if (partitions == first).all():
        return (whole(first, admitted, held_bytes),)
    return _split(admitted, partitions)


def check_all_name(named: Any, partition: int) -> None:
    """Raises `Invalid` if a record names another partition than the request does."""
    if named is None:
        return
    others = np.flatnonzero(_named_or(named, partition) != partition)
    if len(others):
        raise Invalid(
            f"a record names another partition than the request, which is for partition {partition}",
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
            f"there is no partition {int(numbers[wrong[0]])}: the topic has partitions 0 to {partition_count - 1}",
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
        records = gathered.slice(first, end - first)
        shares.append(Share(number, records, held_bytes, payload, timestamp_ms, order[first:end]))
    return tuple(shares)
