"""DescribeTransactions (65): no transactional id is known, because there are no transactions."""

from __future__ import annotations

from datetime import UTC, datetime

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TransactionState
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode

_NEVER = datetime.fromtimestamp(0, UTC)


class DescribeTransactionsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DescribeTransactionsRequest)
        states = tuple(map(_unknown, request.transactional_ids))
        return encode(call, DescribeTransactionsResponse(throttle_time=NO_TIME, transaction_states=states))


def _unknown(transactional_id: str) -> TransactionState:
    return TransactionState(
        error_code=ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=NO_TIME,
        transaction_start_time=_NEVER,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )
