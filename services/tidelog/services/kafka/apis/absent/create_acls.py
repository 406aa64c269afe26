"""CreateAcls (30): refused, because there is no authorizer. Kafka answers so without one."""

from __future__ import annotations

from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.absent.describe_acls import NO_AUTHORIZER
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class CreateAclsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, CreateAclsRequest)
        refused = AclCreationResult(error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER)
        results = (refused,) * len(request.creations)
        return encode(call, CreateAclsResponse(throttle_time=NO_TIME, results=results))
