"""Encodes answers to Metadata from pieces that are kept: clients ask all the time, and little changes.

The entry of a topic depends on the topic, on the leaders of the shards, and on the version. It is encoded once for each
of these and kept until the leaders or the topic change. An answer is the part before its topics, the number of topics,
their entries, and the part after them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.serial.writers import write_unsigned_varint

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.kafka.apis.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, if_asked
from tidelog.services.kafka.apis.topic_lookup import topic_uuid
from tidelog.services.kafka.cluster_nodes import NO_EPOCH, NO_NODE, ClusterNodes, ShardLeader
from tidelog.services.kafka.protocol.api import Answer
from tidelog.services.kafka.protocol.api_table import API_TABLE, METADATA
from tidelog.services.kafka.protocol.messages import NO_TIME, encode_as

ENTRIES_MAX = 50_000
"""Kept entries; above that, all are dropped and made again."""
_CLUSTER_OPERATIONS_VERSIONS = range(8, 11)
"""Only these versions have the operations on the cluster, as the last field."""

_ERROR_SINCE = 13
"""From this version on there is an error of the whole answer, as the last field."""

_Key = tuple[int, bool, str]


class MetadataEncoding:
    """Encodes for one listener."""

    def __init__(self) -> None:
        self._cluster: ClusterNodes | None = None
        self._before: dict[int, bytes] = {}
        self._entries: dict[_Key, tuple[Topic, bytes]] = {}

    def answer(
        self,
        version: int,
        cluster: ClusterNodes,
        topics: Sequence[Topic],
        failures: Sequence[MetadataResponseTopic],
        *,
        with_topic_operations: bool,
        with_cluster_operations: bool,
    ) -> Answer:
        """The answer with `topics`, and `failures` after them."""
        self._forget_if_changed(cluster)
        if version not in self._before:
            self._before[version] = _before(version, cluster)
        known = [self._entry(version, cluster, topic, with_topic_operations) for topic in topics]
        failed = [_entry_bytes(version, failure) for failure in failures]
        count, after = (
            _count(version, len(known) + len(failed)),
            _after(version, with_operations=with_cluster_operations),
        )
        return (b"".join((self._before[version], count, *known, *failed, after)),)

    def _forget_if_changed(self, cluster: ClusterNodes) -> None:
        if cluster != self._cluster:
            self._cluster = cluster
            self._before.clear()
            self._entries.clear()

    def _entry(self, version: int, cluster: ClusterNodes, topic: Topic, with_operations: bool) -> bytes:
        key = (version, with_operations, topic.name)
        kept = self._entries.get(key)
        if kept is not None and kept[0] is topic:
            return kept[1]
        encoded = _entry_bytes(version, _topic_entry(topic, cluster.leaders, with_operations))
        if len(self._entries) >= ENTRIES_MAX:
            self._entries.clear()
        self._entries[key] = (topic, encoded)
        return encoded


def failed_entry(error: ErrorCode, name: str | None, topic_id: UUID | None = None) -> MetadataResponseTopic:
    """The entry of a topic that cannot be told."""
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=())


def _topic_entry(topic: Topic, leaders: Mapping[int, ShardLeader], with_operations: bool) -> MetadataResponseTopic:
    partitions = (_partition(number, leaders.get(shard)) for number, shard in enumerate(topic.shards))
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic_uuid(topic),
        partitions=tuple(partitions),
        topic_authorized_operations=if_asked(TOPIC_OPERATIONS, with_operations),
    )


def _partition(number: int, leader: ShardLeader | None) -> MetadataResponsePartition:
    """The bucket holds the records, so the leader is the only replica."""
    replicas = (leader.node_id,) if leader else ()
    return MetadataResponsePartition(
        error_code=ErrorCode.none if leader else ErrorCode.leader_not_available,
        partition_index=number,
        leader_id=leader.node_id if leader else NO_NODE,
        leader_epoch=leader.epoch if leader else NO_EPOCH,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )


def _response(cluster: ClusterNodes, topics: tuple[MetadataResponseTopic, ...]) -> MetadataResponse:
    brokers = (
        MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in cluster.nodes
    )
    return MetadataResponse(
        throttle_time=NO_TIME,
        brokers=tuple(brokers),
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
    )


def _encoded(version: int, response: MetadataResponse) -> bytes:
    body = encode_as(METADATA, version, response)
    assert body is not None, "only Produce has requests without answers"
    return b"".join(body)


def _entry_bytes(version: int, entry: MetadataResponseTopic) -> bytes:
    """One entry, as an answer contains it."""
    nobody = ClusterNodes("", (), {})
    empty, one = (_encoded(version, _response(nobody, topics)) for topics in ((), (entry,)))
    after = len(_after(version, with_operations=False))
    return one[len(empty) - after : len(one) - after]


def _before(version: int, cluster: ClusterNodes) -> bytes:
    """An answer up to the number of its topics."""
    encoded = _encoded(version, _response(cluster, ()))
    return encoded[: len(encoded) - len(_after(version, with_operations=False)) - len(_count(version, 0))]


def _count(version: int, number: int) -> bytes:
    """The number of entries of an array: an int32, or in a flexible version a varint of one more."""
    if not API_TABLE[METADATA].is_flexible(version):
        return number.to_bytes(4, "big")
    written = io.BytesIO()
    write_unsigned_varint(written, number + 1)
    return written.getvalue()


def _after(version: int, *, with_operations: bool) -> bytes:
    """An answer from the end of its topics on: the operations on the cluster, the error and the tagged fields, where
    the version has them."""
    operations = if_asked(CLUSTER_OPERATIONS, with_operations).to_bytes(4, "big", signed=True)
    has_operations = version in _CLUSTER_OPERATIONS_VERSIONS
    no_error = b"\0\0" * (version >= _ERROR_SINCE)
    return operations * has_operations + no_error + b"\0" * API_TABLE[METADATA].is_flexible(version)
