"""DescribeUserScramCredentials (50): no user has credentials, because there is no authentication of clients."""

from __future__ import annotations

from collections import Counter

from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class DescribeUserScramCredentialsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DescribeUserScramCredentialsRequest)
        named = Counter(user.name for user in request.users or ())
        answer = DescribeUserScramCredentialsResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            error_message="",
            results=tuple(_result(name, times) for name, times in named.items()),
        )
        return encode(call, answer)


def _result(name: str, times: int) -> DescribeUserScramCredentialsResult:
    code, text = ErrorCode.resource_not_found, f"the user {name[:80]!r} has no credentials"
    if times > 1:
        code, text = ErrorCode.duplicate_resource, f"the request names the user {name[:80]!r} twice"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text, credential_infos=())
