"""UnregisterBroker (64): a broker leaves the cluster by itself when it stops, so there is none to unregister."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class UnregisterBrokerApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, UnregisterBrokerRequest)
        number = request.broker_id
        code, message = ErrorCode.broker_id_not_registered, f"no broker {number} is running"
        if number in {place.node_id for place in self._broker.cluster(call.context).brokers}:
            code = ErrorCode.invalid_request
            message = f"broker {number} is running: stop it, and it leaves the cluster"
        return encode(call, UnregisterBrokerResponse(throttle_time=NO_TIME, error_code=code, error_message=message))
