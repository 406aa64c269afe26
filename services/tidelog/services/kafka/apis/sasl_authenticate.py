"""SaslAuthenticate (36): refused, because there is no authentication of clients."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import decode, encode

_MESSAGE = "this broker does not authenticate clients: set security.protocol to PLAINTEXT"


class SaslAuthenticateApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        decode(call, SaslAuthenticateRequest)
        code = ErrorCode.illegal_sasl_state
        return encode(call, SaslAuthenticateResponse(error_code=code, error_message=_MESSAGE, auth_bytes=b""))
