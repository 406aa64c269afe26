"""DeleteAcls (31): refused, because there is no authorizer. Kafka answers so without one."""

from __future__ import annotations

from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.absent.describe_acls import NO_AUTHORIZER
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class DeleteAclsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DeleteAclsRequest)
        refused = DeleteAclsFilterResult(
            error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER, matching_acls=()
        )
        results = (refused,) * len(request.filters)
        return encode(call, DeleteAclsResponse(throttle_time=NO_TIME, filter_results=results))
