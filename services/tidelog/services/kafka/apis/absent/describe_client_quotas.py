"""DescribeClientQuotas (48): there are no quotas, as in a Kafka where nobody has set one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import Refused
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode

ENTITY_TYPES = ("user", "client-id", "ip")


class Match(IntEnum):
    """How a filter matches an entity: its name, the default entity, or any."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class DescribeClientQuotasApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DescribeClientQuotasRequest)
        try:
            _check(request.components)
        except Refused as refusal:
            return encode(call, _answer(refusal.code, str(refusal), None))
        return encode(call, _answer(ErrorCode.none, "", ()))


def _check(components: Sequence[ComponentData]) -> None:
    """Raises `Refused`."""
    for each in components:
        if each.entity_type not in ENTITY_TYPES:
            text = f"quotas have entities of the types {', '.join(ENTITY_TYPES)}, not {each.entity_type[:80]!r}"
            raise Refused(ErrorCode.unsupported_version if each.entity_type else ErrorCode.invalid_request, text)
        if each.match_type not in tuple(Match):
            raise Refused(ErrorCode.invalid_request, f"there is no match type {each.match_type}: use 0, 1 or 2")


def _answer(code: ErrorCode, message: str, entries: tuple[()] | None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(throttle_time=NO_TIME, error_code=code, error_message=message, entries=entries)
