"""ListTransactions (66): there are none."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse

from tidelog.coordinator.groups.subscriptions import check_pattern
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import Invalid

_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""The states of transactions in Kafka."""
PATTERN_CHARS_MAX = 1_000


class ListTransactionsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, ListTransactionsRequest)
        is_pattern = _is_pattern(request.transactional_id_pattern)
        unknown = tuple(state for state in request.state_filters if state not in _STATES) if is_pattern else ()
        answer = ListTransactionsResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none if is_pattern else ErrorCode.invalid_regular_expression,
            unknown_state_filters=unknown,
            transaction_states=(),
        )
        return encode(call, answer)


def _is_pattern(text: str | None) -> bool:
    """Whether `text` is an RE2 expression, if it is given."""
    try:
        check_pattern((text or "")[:PATTERN_CHARS_MAX])
    except Invalid:
        return False
    return True
