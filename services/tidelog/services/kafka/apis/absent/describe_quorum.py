"""DescribeQuorum (55): refused, because there is no quorum of controllers: etcd or the bucket coordinates brokers."""

from __future__ import annotations

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import decode, encode

_NO_QUORUM = "this cluster has no quorum of controllers: `tidelog cluster info` shows what coordinates it"


class DescribeQuorumApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        decode(call, DescribeQuorumRequest)
        answer = DescribeQuorumResponse(
            error_code=ErrorCode.unsupported_version, error_message=_NO_QUORUM, topics=(), nodes=()
        )
        return encode(call, answer)
