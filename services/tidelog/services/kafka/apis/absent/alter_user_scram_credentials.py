"""AlterUserScramCredentials (51): refused, because there is no authentication of clients."""

from __future__ import annotations

from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode

_ABSENT = "the user has no credentials"
_NO_SCRAM = "this broker does not authenticate clients, so it keeps no credentials"


class AlterUserScramCredentialsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, AlterUserScramCredentialsRequest)
        refusals = {each.name: _result(each.name, ErrorCode.resource_not_found, _ABSENT) for each in request.deletions}
        refusals |= {
            each.name: _result(each.name, ErrorCode.unsupported_version, _NO_SCRAM) for each in request.upsertions
        }
        return encode(call, AlterUserScramCredentialsResponse(throttle_time=NO_TIME, results=tuple(refusals.values())))


def _result(user: str, code: ErrorCode, message: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
