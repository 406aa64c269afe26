"""InitProducerId (22): an id for an idempotent producer. A transactional id is refused: there are no transactions."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError

_NO_PRODUCER = -1


class InitProducerIdApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: InitProducerIdRequest = decode(call, InitProducerIdRequest)
        if request.transactional_id is not None:
            return encode(call, _answer(ErrorCode.transactional_id_authorization_failed, _NO_PRODUCER, _NO_PRODUCER))
        try:
            producer_id = await self._broker.new_producer_id(call.context)
        except TidelogError as error:
            return encode(call, _answer(error_code(error, Family.GROUP), _NO_PRODUCER, _NO_PRODUCER))
        return encode(call, _answer(ErrorCode.none, producer_id, 0))


def _answer(code: ErrorCode, producer_id: int, epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time=NO_TIME, error_code=code, producer_id=producer_id, producer_epoch=epoch)
