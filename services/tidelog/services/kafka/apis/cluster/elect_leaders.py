"""ElectLeaders (43): the cluster elects leaders by itself, so a partition that has one needs no election."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import Refused, refusal_of
from tidelog.services.kafka.cluster_nodes import ClusterNodes, cluster_nodes
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import Invalid, NotFound, TidelogError


class Election(IntEnum):
    """ElectionType: of the preferred replica, or of one that may lack records."""

    PREFERRED = 0
    UNCLEAN = 1


_NO_LEADER = {
    Election.PREFERRED: ErrorCode.preferred_leader_not_available,
    Election.UNCLEAN: ErrorCode.eligible_leaders_not_available,
}


class ElectLeadersApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, ElectLeadersRequest)
        known = request.election_type in tuple(Election)
        asked, is_all = request.topic_partitions, request.topic_partitions is None
        if asked is None:
            asked = self._all(call) if known else ()
        nodes = cluster_nodes(self._service, call.context, call.listener)
        results = [self._topic(call, nodes, request.election_type, each) for each in asked]
        answer = ElectLeadersResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none if known else ErrorCode.invalid_request,
            replica_election_results=tuple(_needed(each) if is_all else each for each in results),
        )
        return encode(call, answer)

    def _all(self, call: Call) -> Sequence[TopicPartitions]:
        topics = self._broker.topics(call.context)
        return [TopicPartitions(topic=each.name, partitions=tuple(range(each.partition_count))) for each in topics]

    def _topic(self, call: Call, nodes: ClusterNodes, election: int, asked: TopicPartitions) -> ReplicaElectionResult:
        results = tuple(self._elected(call, nodes, election, asked.topic, number) for number in asked.partitions)
        return ReplicaElectionResult(topic=asked.topic, partition_result=results)

    def _elected(self, call: Call, nodes: ClusterNodes, election: int, topic: str, number: int) -> PartitionResult:
        try:
            if election not in tuple(Election):
                raise Refused(ErrorCode.invalid_request, f"there is no election type {election}")
            route = self._broker.route(call.context, topic, number)
            has_leader = route.shard in nodes.leaders
            code = ErrorCode.election_not_needed if has_leader else _NO_LEADER[Election(election)]
            message = "the cluster elects leaders by itself"
        except TidelogError as error:
            code, message = refusal_of(NotFound(str(error)) if type(error) is Invalid else error)
        return PartitionResult(partition_id=number, error_code=code, error_message=message)


def _needed(result: ReplicaElectionResult) -> ReplicaElectionResult:
    """Without the partitions that need no election, as Kafka answers a request for all."""
    failed = (each for each in result.partition_result if each.error_code is not ErrorCode.election_not_needed)
    return ReplicaElectionResult(topic=result.topic, partition_result=tuple(failed))
