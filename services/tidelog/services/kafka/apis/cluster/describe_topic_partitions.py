"""DescribeTopicPartitions (75): the leaders of many partitions, in pages (KIP-966)."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import Cursor as NextCursor
from kio.schema.describe_topic_partitions.v0.response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.errors import ErrorCode

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.operations import TOPIC_OPERATIONS
from tidelog.services.kafka.apis.refusals import refusal_of
from tidelog.services.kafka.apis.topic_lookup import TopicLookup, topic_uuid
from tidelog.services.kafka.cluster_nodes import NO_EPOCH, NO_NODE, ClusterNodes, ShardLeader, cluster_nodes
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError

PARTITIONS_MAX = 2_000
"""Of one answer (Kafka's ``max.request.partition.size.limit``)."""


class DescribeTopicPartitionsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DescribeTopicPartitionsRequest)
        page = _Page(max(1, min(PARTITIONS_MAX, request.response_partition_limit)), request.cursor)
        nodes = cluster_nodes(self._service, call.context, call.listener)
        lookup = TopicLookup(self._broker, call.context)
        for name in page.names(self._names(call, request)):
            if page.is_full(name):
                break
            try:
                page.add(await lookup.by_name(name), nodes)
            except TidelogError as error:
                page.topics.append(_topic(name, code=refusal_of(error)[0]))
        answer = DescribeTopicPartitionsResponse(
            throttle_time=NO_TIME, topics=tuple(page.topics), next_cursor=page.next_cursor
        )
        return encode(call, answer)

    def _names(self, call: Call, request: DescribeTopicPartitionsRequest) -> Sequence[str]:
        """Sorted. None named: all."""
        named = [each.name for each in request.topics] or [each.name for each in self._broker.topics(call.context)]
        return sorted(set(named))


class _Page:
    """One answer, with room for `left` further partitions. `cursor`: where it begins."""

    def __init__(self, left: int, cursor: Cursor | None) -> None:
        self._left = left
        self._cursor = cursor
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: NextCursor | None = None

    def names(self, names: Sequence[str]) -> Sequence[str]:
        """Those of `names` from the cursor on."""
        return [name for name in names if self._cursor is None or name >= self._cursor.topic_name]

    def is_full(self, name: str) -> bool:
        """Whether the page ends before the topic `name`, or has ended."""
        if self.next_cursor is None and not self._left:
            self.next_cursor = NextCursor(topic_name=name, partition_index=0)
        return self.next_cursor is not None

    def add(self, topic: Topic, nodes: ClusterNodes) -> None:
        at_cursor = self._cursor is not None and self._cursor.topic_name == topic.name
        first = max(0, self._cursor.partition_index) if self._cursor and at_cursor else 0
        numbers = range(first, topic.partition_count)[: self._left]
        partitions = tuple(_partition(number, nodes.leaders.get(topic.shards[number])) for number in numbers)
        self.topics.append(_topic(topic.name, topic, partitions))
        self._left -= len(numbers)
        if numbers.stop < topic.partition_count:
            self.next_cursor = NextCursor(topic_name=topic.name, partition_index=numbers.stop)


def _topic(
    name: str,
    topic: Topic | None = None,
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = (),
    code: ErrorCode = ErrorCode.none,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_uuid(topic) if topic else None,
        is_internal=False,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(number: int, leader: ShardLeader | None) -> DescribeTopicPartitionsResponsePartition:
    """The bucket holds the records, so the leader is the only replica."""
    replicas = (leader.node_id,) if leader else ()
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.none if leader else ErrorCode.leader_not_available,
        partition_index=number,
        leader_id=leader.node_id if leader else NO_NODE,
        leader_epoch=leader.epoch if leader else NO_EPOCH,
        replica_nodes=replicas,
        isr_nodes=replicas,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=(),
    )
