"""SaslHandshake (17): refused, because there is no authentication of clients. Kafka answers so on a PLAINTEXT
listener."""

from __future__ import annotations

import logging

from kio.schema.errors import ErrorCode
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import decode, encode

_log = logging.getLogger(__name__)


class SaslHandshakeApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, SaslHandshakeRequest)
        fields = {"client": call.client_host, "client_id": call.context.client_id, "mechanism": request.mechanism[:80]}
        _log.debug(
            "a Kafka client asked for SASL, which this broker does not have: set its security.protocol to PLAINTEXT",
            extra={"fields": fields},
        )
        return encode(call, SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=()))
