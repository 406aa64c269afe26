"""AlterClientQuotas (49): refused, because there are no quotas. To remove one changes nothing, as in Kafka."""

from __future__ import annotations

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntryData as Change
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntityData, EntryData
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode

_NO_QUOTAS = "this broker has no quotas for clients: none was changed"


class AlterClientQuotasApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, AlterClientQuotasRequest)
        entries = tuple(map(_answer, request.entries))
        return encode(call, AlterClientQuotasResponse(throttle_time=NO_TIME, entries=entries))


def _answer(change: Change) -> EntryData:
    removes = all(each.remove for each in change.ops)
    return EntryData(
        error_code=ErrorCode.none if removes else ErrorCode.unsupported_version,
        error_message=None if removes else _NO_QUOTAS,
        entity=tuple(EntityData(entity_type=e.entity_type, entity_name=e.entity_name) for e in change.entity),
    )
