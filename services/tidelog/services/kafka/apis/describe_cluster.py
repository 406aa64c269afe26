"""DescribeCluster (60): the brokers."""

from __future__ import annotations

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.operations import CLUSTER_OPERATIONS, if_asked
from tidelog.services.kafka.cluster_nodes import NO_NODE, Node, cluster_nodes
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode

_BROKERS, _CONTROLLERS = 1, 2
"""The types of endpoints. This broker knows its own."""


class DescribeClusterApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DescribeClusterRequest)
        if request.endpoint_type != _BROKERS:
            return encode(call, _refusal(request))
        cluster = cluster_nodes(self._service, call.context, call.listener)
        answer = DescribeClusterResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller_id,
            brokers=tuple(map(_broker, cluster.nodes)),
            cluster_authorized_operations=if_asked(CLUSTER_OPERATIONS, request.include_cluster_authorized_operations),
        )
        return encode(call, answer)


def _broker(node: Node) -> DescribeClusterBroker:
    return DescribeClusterBroker(
        broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=False
    )


def _refusal(request: DescribeClusterRequest) -> DescribeClusterResponse:
    is_other = request.endpoint_type == _CONTROLLERS
    return DescribeClusterResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.mismatched_endpoint_type if is_other else ErrorCode.unsupported_endpoint_type,
        error_message="this is a broker, and there are no separate controllers: ask for endpoint type 1",
        cluster_id="",
        controller_id=NO_NODE,
        brokers=(),
    )
