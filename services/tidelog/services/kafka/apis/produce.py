"""Produce (0): records for partitions that this broker leads.

A request is placed once its records have their offsets; it is answered when they are committed, as `acks` says. So a
producer with several requests in flight waits for one commit, and its batches keep their order.

With acks=0 the client reads no answer. After an error its connection ends, as with Kafka, so that it asks for the
leaders again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace

from kio.schema.errors import ErrorCode

from tidelog.services.broker.api.produce import Acks, Appended, Appending, PartDraft
from tidelog.services.kafka.apis.produced_batches import RefusedPart, drafts
from tidelog.services.kafka.protocol.api import Answer, Call, Malformed
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.produce_messages import (
    NOTHING,
    ProducedPart,
    ProducePart,
    ProduceRequest,
    read_produce,
    write_produced,
)
from tidelog.services.kafka.service import KafkaService
from tidelog.storage.errors import TidelogError

DECODED_IN_THREAD_BYTES = 64 << 10
"""Larger requests are decoded in a thread, so that they do not hold up other connections."""
_ACKS = {-1: Acks.ALL, 0: Acks.NONE, 1: Acks.LEADER}


@dataclass(frozen=True)
class _Placed:
    """`drafts` stand for the parts of the request; those that are not refused are in `appending`, in order."""

    request: ProduceRequest
    drafts: Sequence[PartDraft | RefusedPart]
    appending: Appending


class ProduceApi:
    """See `protocol.api.Api`."""

    def __init__(self, service: KafkaService) -> None:
        self._broker = service.broker
        self._clock = service.runtime.clock
        self._decoded_bytes_max = service.settings.socket_request_max_bytes

    async def answer(self, call: Call) -> Awaitable[Answer]:
        request = read_produce(call)
        if refusal := _refusal(request):
            return self._refused(call, request, refusal)
        decoded = await self._drafts(request.parts, len(call.body))
        accepted = [draft for draft in decoded if isinstance(draft, PartDraft)]
        context = replace(call.context, deadline_s=self._clock.monotonic() + request.timeout_s)
        appending = await self._broker.append_parts(context, accepted, _ACKS[request.acks])
        return self._answered(call, _Placed(request, decoded, appending))

    async def _drafts(self, parts: Sequence[ProducePart], size: int) -> Sequence[PartDraft | RefusedPart]:
        if size < DECODED_IN_THREAD_BYTES:
            return drafts(parts, self._decoded_bytes_max)
        return await asyncio.to_thread(drafts, parts, self._decoded_bytes_max)

    async def _answered(self, call: Call, placed: _Placed) -> Answer:
        appended = iter(await placed.appending.answers())
        answers = [
            _refused_part(part, draft) if isinstance(draft, RefusedPart) else self._part(call, part, next(appended))
            for part, draft in zip(placed.request.parts, placed.drafts, strict=True)
        ]
        return _answer(call, placed.request, answers)

    async def _refused(self, call: Call, request: ProduceRequest, refusal: RefusedPart) -> Answer:
        return _answer(call, request, [_refused_part(part, refusal) for part in request.parts])

    def _part(self, call: Call, part: ProducePart, appended: Appended) -> ProducedPart:
        if appended.error:
            code = error_code(appended.error, Family.WRITE)
            return ProducedPart(part.topic, part.partition, code, str(appended.error))
        time_ms = appended.timestamp_ms if self._sets_times(call, part.topic) else NOTHING
        offset = NOTHING if appended.base_offset is None else appended.base_offset
        return ProducedPart(
            part.topic,
            part.partition,
            base_offset=offset,
            append_time_ms=time_ms,
            log_start_offset=appended.log_start_offset,
        )

    def _sets_times(self, call: Call, topic: str) -> bool:
        try:
            return self._broker.topic(call.context, topic).config.message_timestamp_type == "LogAppendTime"
        except TidelogError:
            return False  # deleted since


def _refusal(request: ProduceRequest) -> RefusedPart | None:
    """Why the whole request is refused, if it is."""
    if request.acks not in _ACKS:
        return RefusedPart(ErrorCode.invalid_required_acks, f"acks is {request.acks}, not -1, 0 or 1")
    if request.transactional_id is not None:
        message = "this broker has no transactions: unset transactional.id"
        return RefusedPart(ErrorCode.transactional_id_authorization_failed, message)
    return None


def _refused_part(part: ProducePart, refusal: RefusedPart) -> ProducedPart:
    return ProducedPart(part.topic, part.partition, refusal.error, refusal.message)


def _answer(call: Call, request: ProduceRequest, parts: Sequence[ProducedPart]) -> Answer:
    """Raises `Malformed` for an error that the client does not read."""
    if request.acks != 0:
        call.count_errors(part.error for part in parts)
        return write_produced(call.version, parts)
    if failed := next((part for part in parts if part.error is not ErrorCode.none), None):
        raise Malformed(
            f"records for partition {failed.partition} of {failed.topic!r} with acks=0 are refused: {failed.message}"
        )
    return None
