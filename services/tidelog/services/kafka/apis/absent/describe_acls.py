"""DescribeAcls (29): refused, because there is no authorizer. Kafka answers so without one."""

from __future__ import annotations

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode

NO_AUTHORIZER = "this broker has no authorizer: every client may do everything"


class DescribeAclsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        decode(call, DescribeAclsRequest)
        answer = DescribeAclsResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.security_disabled,
            error_message=NO_AUTHORIZER,
            resources=(),
        )
        return encode(call, answer)
