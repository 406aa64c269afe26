"""Chooses the partition of each row of a write, and checks rows against the rules of their topic.

A row goes to the partition of its column `partition`, else to that of its key (Kafka's murmur2), else to one that
changes from batch to batch, so that a batch without keys becomes one produce. A row that the topic would refuse stops
the task here: once a batch is committed, it is too late to refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.storage.errors import Invalid, NotFound
from tidelog.storage.partitioner import NO_PARTITION, partitions_of
from tidelog.wire.topics import TopicDescription

KEY_BYTES_MAX = 64 << 10
"""The default of ``key.max.bytes``."""


@dataclass(frozen=True)
class TopicRules:
    """What a topic requires of its records."""

    name: str
    partitions: int
    compacted: bool
    record_bytes_max: int

    @classmethod
    def of(cls, topic: TopicDescription) -> TopicRules:
        configs = topic.configs
        compacted, largest = "compact" in configs["cleanup.policy"], int(configs["max.message.bytes"])
        return cls(topic.name, len(topic.partitions), compacted, largest)


class KnownTopics:
    """The rules of topics, each asked for once."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._known: dict[str, TopicRules] = {}

    def rules(self, name: str) -> TopicRules:
        """Raises `NotFound`."""
        if name not in self._known:
            try:
                self._known[name] = TopicRules.of(self._connection.topic(name))
            except NotFound as error:
                raise NotFound(f"{error}; create it first: tidelog topic create {name}") from error
        return self._known[name]


def partitions_chosen(
    rules: TopicRules, columns: Mapping[str, pa.Array[Any]], given: pa.Array[Any] | None, unkeyed: int
) -> npt.NDArray[np.int32]:
    """The partition of each row; of a row without a partition and a key, ``unkeyed`` modulo their number. Raises
    `Invalid`."""
    count, keys = len(columns["value"]), columns.get("key")
    if keys is None:
        chosen = np.full(count, NO_PARTITION, np.int32)
    else:
        chosen = partitions_of(pa.chunked_array([keys]), rules.partitions)
    chosen[chosen == NO_PARTITION] = unkeyed % rules.partitions
    if given is not None and given.null_count < count:
        _check_given(rules, given)
        named = np.asarray(given.is_valid())
        chosen[named] = given.drop_null().to_numpy()
    return chosen


def check_rows(rules: TopicRules, columns: Mapping[str, pa.Array[Any]]) -> None:
    """Raises `Invalid`."""
    keys, sizes = columns.get("key"), _lengths(columns["value"])
    if rules.compacted and (keys is None or keys.null_count):
        raise Invalid(
            f"a row for {rules.name} has no key, but that topic is compacted: give each row a key", field="key"
        )
    if keys is not None:
        key_bytes = _lengths(keys)
        _check_largest(key_bytes, KEY_BYTES_MAX, "the key of a row", rules)
        sizes = sizes + key_bytes
    _check_largest(sizes, rules.record_bytes_max, "a row (key and value)", rules)


def _check_given(rules: TopicRules, given: pa.Array[Any]) -> None:
    least, most = pc.min_max(given).values()
    for wrong in (least.as_py(), most.as_py()):
        if not 0 <= wrong < rules.partitions:
            known = f"it has {rules.partitions}, from 0"
            raise Invalid(f"topic {rules.name} has no partition {wrong}: {known}", field="partition")


def _lengths(column: pa.Array[Any]) -> npt.NDArray[np.int64]:
    payload: Any = column
    lengths: Any = pc.binary_length(payload)
    sizes: npt.NDArray[np.int64] = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _check_largest(sizes: npt.NDArray[np.int64], bytes_max: int, what: str, rules: TopicRules) -> None:
    if len(sizes) and int(sizes.max()) > bytes_max:
        raise Invalid(f"{what} for {rules.name} has {int(sizes.max()):,} bytes; at most {bytes_max:,} are allowed")
