"""ListConfigResources (74): the resources that have configs. Version 0 asks for client metrics, which do not exist."""

from __future__ import annotations

from collections.abc import Iterator

from kio.schema.errors import ErrorCode
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse

from tidelog.services.kafka.apis.config_resources import LISTED, Resource
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode

_TYPES_SINCE = 1


class ListConfigResourcesApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, ListConfigResourcesRequest)
        wanted = (request.resource_types or LISTED) if call.version >= _TYPES_SINCE else (Resource.CLIENT_METRICS,)
        if not set(wanted) <= set(LISTED):
            return encode(call, _answer(ErrorCode.unsupported_version))
        return encode(call, _answer(ErrorCode.none, *self._resources(call, wanted)))

    def _resources(self, call: Call, wanted: tuple[int, ...]) -> Iterator[ConfigResource]:
        if Resource.TOPIC in wanted:
            for topic in self._broker.topics(call.context):
                yield ConfigResource(resource_name=topic.name, resource_type=Resource.TOPIC)
        brokers = self._broker.cluster(call.context).brokers
        for kind in (Resource.BROKER_LOGGER, Resource.BROKER):
            if kind in wanted:
                for place in brokers:
                    yield ConfigResource(resource_name=str(place.node_id), resource_type=kind)


def _answer(code: ErrorCode, *resources: ConfigResource) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(throttle_time=NO_TIME, error_code=code, config_resources=resources)
