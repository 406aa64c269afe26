"""AlterPartitionReassignments (45): a partition's replica is its leader, and the cluster places leaders itself. So only
the assignment that a partition has already is accepted."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import Refused, refusal_of
from tidelog.services.kafka.cluster_nodes import ClusterNodes, cluster_nodes
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError


class AlterPartitionReassignmentsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, AlterPartitionReassignmentsRequest)
        nodes = cluster_nodes(self._service, call.context, call.listener)
        topics = tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(self._answer(call, nodes, topic.name, each) for each in topic.partitions),
            )
            for topic in request.topics
        )
        answer = AlterPartitionReassignmentsResponse(
            throttle_time=NO_TIME,
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=ErrorCode.none,
            error_message=None,
            responses=topics,
        )
        return encode(call, answer)

    def _answer(
        self, call: Call, nodes: ClusterNodes, topic: str, asked: ReassignablePartition
    ) -> ReassignablePartitionResponse:
        code, message = ErrorCode.none, None
        try:
            route = self._broker.route(call.context, topic, asked.partition_index)
            leader = nodes.leaders.get(route.shard)
            _check(asked.replicas, nodes, leader.node_id if leader else None)
        except TidelogError as error:
            code, message = refusal_of(error)
        return ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_code=code, error_message=message
        )


def _check(replicas: Sequence[int] | None, nodes: ClusterNodes, leader: int | None) -> None:
    """Raises `Refused`. None cancels a reassignment."""
    if replicas is None:
        raise Refused(ErrorCode.no_reassignment_in_progress, "no partition is being reassigned")
    unknown = next((each for each in replicas if nodes.node(each) is None), None)
    if unknown is not None:
        raise Refused(ErrorCode.invalid_replica_assignment, f"there is no broker {unknown}")
    if list(replicas) != [leader]:
        text = (
            f"the bucket holds the records, and the cluster places leaders itself: the only replica is broker {leader}"
        )
        raise Refused(ErrorCode.invalid_replica_assignment, text)
