"""FindCoordinator (10): the broker that coordinates a group.

For a transactional id it names this broker, which refuses the id in InitProducerId, where clients show the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as OneKeyRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as OneKeyResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import Coordinator, FindCoordinatorResponse

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.cluster_nodes import NOWHERE, ClusterNodes, Node, cluster_nodes, node_of, own_node_id
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import Invalid

_MANY_KEYS_SINCE = 4
_GROUP, _TRANSACTION = 0, 1


class FindCoordinatorApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        if call.version >= _MANY_KEYS_SINCE:
            request = decode(call, FindCoordinatorRequest)
            found = self._found(call, request.key_type, request.coordinator_keys)
            return encode(call, FindCoordinatorResponse(throttle_time=NO_TIME, coordinators=tuple(found)))
        request = decode(call, OneKeyRequest)
        (one,) = self._found(call, request.key_type, (request.key,))
        return encode(call, _of_one(one))

    def _found(self, call: Call, key_type: int, keys: Sequence[str]) -> Sequence[Coordinator]:
        nodes = cluster_nodes(self._service, call.context, call.listener)
        return [self._coordinator(call, nodes, key_type, key) for key in keys]

    def _coordinator(self, call: Call, nodes: ClusterNodes, key_type: int, key: str) -> Coordinator:
        if key_type == _TRANSACTION:
            return _answer(key, nodes.node(own_node_id(self._service)) or NOWHERE)
        if key_type != _GROUP:
            return _refusal(key, ErrorCode.invalid_request, f"coordinators of type {key_type} do not exist here")
        try:
            coordinator = self._broker.groups.coordinator(call.context, key)
        except Invalid as error:
            return _refusal(key, ErrorCode.invalid_group_id, str(error))
        node = node_of(self._service, coordinator, nodes)
        if node is None:
            text = "the shard of this group has no leader at this moment; try again"
            return _refusal(key, ErrorCode.coordinator_not_available, text)
        return _answer(key, node)


def _answer(key: str, node: Node) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=node.node_id,
        host=node.host,
        port=node.port,
        error_code=ErrorCode.none,
        error_message=None,
    )


def _refusal(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=NOWHERE.node_id,
        host=NOWHERE.host,
        port=NOWHERE.port,
        error_code=code,
        error_message=message,
    )


def _of_one(found: Coordinator) -> OneKeyResponse:
    return OneKeyResponse(
        throttle_time=NO_TIME,
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
