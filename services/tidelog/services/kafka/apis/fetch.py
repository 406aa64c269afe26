"""Fetch (1): records of many partitions, as record batches that begin at the offsets asked for.

The records are encoded again from Arrow, so a batch here is not the batch that a producer sent. Fetch sessions are
refused as Kafka's protocol foresees it: the answer has session 0, and the client names all its partitions each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchRequest

from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits, FetchPart
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.apis.fetched_batches import encoded_parts
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.fetch_messages import NO_SESSION, write_fetched
from tidelog.services.kafka.protocol.messages import decode

RECORDS_MAX = 1 << 20
"""Of one answer."""
ENCODED_IN_THREAD_BYTES = 64 << 10
LOOK_AGAIN_S = 0.02
"""How long to wait for more if there is something, but less than the client's ``fetch.min.bytes``."""


class FetchApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: FetchRequest = decode(call, FetchRequest)
        if request.session_id != NO_SESSION:
            return write_fetched(call.version, (), ErrorCode.fetch_session_id_not_found)
        parts = [
            FetchPart(topic.topic, each.partition, each.fetch_offset, max(0, each.partition_max_bytes))
            for topic in request.topics
            for each in topic.partitions
        ]
        fetched = await self._fetched(call.context.not_forwarded(), parts, request)
        size = sum(batch.nbytes for part in fetched if part.fetched for batch in part.fetched.batches)
        if size < ENCODED_IN_THREAD_BYTES:
            return write_fetched(call.version, encoded_parts(fetched))
        return write_fetched(call.version, await asyncio.to_thread(encoded_parts, fetched))

    async def _fetched(
        self, context: RequestContext, parts: Sequence[FetchPart], request: FetchRequest
    ) -> Sequence[FetchedPart]:
        """Wait until there are `min_bytes`, for the time that the client allows, or until the broker stops."""
        clock = self._service.runtime.clock
        until_s = clock.monotonic() + request.max_wait.total_seconds()
        while True:
            left_s = 0.0 if self._service.draining.is_set() else max(0.0, until_s - clock.monotonic())
            found = await self._once(context, parts, request.max_bytes, left_s)
            if not left_s or _is_enough(found, request.min_bytes):
                return found
            await clock.sleep(min(LOOK_AGAIN_S, left_s))

    async def _once(
        self, context: RequestContext, parts: Sequence[FetchPart], max_bytes: int, wait_s: float
    ) -> Sequence[FetchedPart]:
        limits = FetchLimits(RECORDS_MAX, max(0, max_bytes), wait_ms=round(wait_s * 1000))
        return await self._broker.fetch_parts(context, parts, limits)


def _is_enough(found: Sequence[FetchedPart], min_bytes: int) -> bool:
    if any(part.error for part in found):
        return True
    size = sum(batch.nbytes for part in found if part.fetched for batch in part.fetched.batches)
    return size >= min_bytes or any(part.advanced for part in found if not size)
