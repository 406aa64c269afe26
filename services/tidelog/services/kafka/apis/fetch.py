"""Fetch (1): records of many partitions, as record batches that begin at the offsets asked for.

Recent records that came by this protocol go out in the batches in which they came, so they cost no encoding and keep
their codec. Others are encoded from Arrow (`fetched_batches.py`). Fetch sessions are refused as Kafka's protocol
foresees it: the answer has session 0, and the client names all its partitions each time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest

from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits, FetchPart
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.apis.fetched_batches import encoded_parts
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.leader_epochs import epoch_error, leader_epoch
from tidelog.services.kafka.apis.long_polls import until_drained
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.fetch_messages import NO_SESSION, KafkaPart, write_fetched
from tidelog.services.kafka.protocol.messages import NO_TIME, decode

ENCODED_IN_THREAD_BYTES = 64 << 10
READ_COMMITTED = 1
TAKES_ANY_CODEC_SINCE = 10
"""A client of an older version may not know zstd (KIP-110), so it gets encoded records only."""
LOOK_AGAIN_S = 0.02
"""How long to wait for more if there is something, but less than the client's ``fetch.min.bytes``."""


class FetchApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: FetchRequest = decode(call, FetchRequest)
        if request.session_id != NO_SESSION:
            call.count_errors((ErrorCode.fetch_session_id_not_found,))
            return write_fetched(call.version, (), ErrorCode.fetch_session_id_not_found)
        asked = [(topic.topic, each) for topic in request.topics for each in topic.partitions]
        epochs = [leader_epoch(self._broker, call.context, topic, each.partition) for topic, each in asked]
        refused = {
            at: KafkaPart(topic, each.partition, error)
            for at, ((topic, each), epoch) in enumerate(zip(asked, epochs, strict=True))
            if (error := epoch_error(each.current_leader_epoch, epoch)) is not ErrorCode.none
        }
        if refused:
            request = replace(request, max_wait=NO_TIME)
        parts = [_part(topic, each) for at, (topic, each) in enumerate(asked) if at not in refused]
        limits = self._limits(request, takes_sent=call.version >= TAKES_ANY_CODEC_SINCE)
        fetched = await self._fetched(call.context.not_forwarded(), parts, request, limits)
        found = iter(await _encoded(fetched, [epoch for at, epoch in enumerate(epochs) if at not in refused]))
        answers = [refused.get(at) or next(found) for at in range(len(asked))]
        call.count_errors(each.error for each in answers)
        return write_fetched(call.version, answers, lists_aborted=request.isolation_level == READ_COMMITTED)

    async def _fetched(
        self, context: RequestContext, parts: Sequence[FetchPart], request: FetchRequest, limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        """Wait until there are `min_bytes`, for the time that the client allows, or until the broker stops."""
        clock = self._service.runtime.clock
        until_s = clock.monotonic() + min(request.max_wait.total_seconds(), self._wait_s_max)
        while (left_s := until_s - clock.monotonic()) > 0 and not self._service.draining.is_set():
            waiting = replace(limits, wait_ms=round(left_s * 1000))
            found = await until_drained(self._service.draining, self._broker.fetch_parts(context, parts, waiting))
            if found is not None and _is_enough(found, request.min_bytes):
                return found
            await clock.sleep(max(0.0, min(LOOK_AGAIN_S, until_s - clock.monotonic())))
        return await self._broker.fetch_parts(context, parts, limits)

    def _limits(self, request: FetchRequest, *, takes_sent: bool) -> FetchLimits:
        settings = self._service.settings
        bytes_max = min(max(0, request.max_bytes), settings.fetch_max_bytes)
        return FetchLimits(settings.fetch_max_records, bytes_max, sent=takes_sent)

    @property
    def _wait_s_max(self) -> float:
        return self._service.settings.fetch_max_wait_ms / 1000


def _part(topic: str, asked: FetchPartition) -> FetchPart:
    return FetchPart(topic, asked.partition, asked.fetch_offset, max(0, asked.partition_max_bytes))


async def _encoded(fetched: Sequence[FetchedPart], epochs: Sequence[int]) -> Sequence[KafkaPart]:
    if _size_to_encode(fetched) < ENCODED_IN_THREAD_BYTES:
        return encoded_parts(fetched, epochs)
    return await asyncio.to_thread(encoded_parts, fetched, epochs)


def _size_to_encode(fetched: Sequence[FetchedPart]) -> int:
    return sum(batch.nbytes for part in fetched if part.fetched for batch in part.fetched.batches)


def _size(fetched: Sequence[FetchedPart]) -> int:
    sent = sum(len(batch.data) for part in fetched if part.fetched for batch in part.fetched.sent)
    return sent + _size_to_encode(fetched)


def _is_enough(found: Sequence[FetchedPart], min_bytes: int) -> bool:
    if any(part.error for part in found):
        return True
    size = _size(found)
    return size >= min_bytes or any(part.advanced for part in found if not size)
