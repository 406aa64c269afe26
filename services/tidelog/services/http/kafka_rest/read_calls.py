"""``GET /topics/{topic}/partitions/{partition}/records``: reads a partition without a consumer, as in Redpanda's proxy.

At least one record is answered if there is one, however large. An answer with records comes at once; one without after
``timeout`` ms.
"""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.fetch import EARLIEST, Fetched, FetchLimits
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.kafka_rest.record_page import Run, page_of
from tidelog.services.http.kafka_rest.rest_answer import (
    OFFSET_MAX,
    check_partition,
    partition_number,
    query_number,
    topic_name,
    topic_of,
)
from tidelog.services.http.kafka_rest.rest_media import answer_format
from tidelog.services.http.kafka_rest.rest_routes import RestRoutes
from tidelog.services.http.listener.waiting_requests import Draining
from tidelog.services.http.service import Service

TIMEOUT_MS_DEFAULT = 1_000
PAGE_BYTES_DEFAULT = 1 << 20
PAGE_BYTES_MAX = 1 << 26
"""Further bounded by ``fetch.max.bytes``."""


class ReadCalls:
    """The call that reads a partition."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._broker = service.broker

    def add_to(self, routes: RestRoutes) -> None:
        routes.add("GET", "/topics/{topic}/partitions/{partition}/records", self.records)

    async def records(self, request: Request) -> Response:
        kind, context = answer_format(request), context_of(request)
        offset = query_number(request, "offset", 0, OFFSET_MAX)
        limits = page_limits(request, self._service)
        topic = await topic_of(self._broker, context, topic_name(request))
        number = partition_number(request)
        check_partition(topic, number)
        if offset is None:
            offset = await self._broker.resolve(context, topic.name, number, EARLIEST)
        fetched = await self._fetch(request, topic.name, number, offset, limits)
        size_bytes = sum(batch.nbytes for batch in fetched.batches)
        page = await page_of([Run(topic.name, number, fetched.batches)], kind, size_bytes)
        return Response(page.body, media_type=kind.media_type)

    async def _fetch(self, request: Request, topic: str, partition: int, offset: int, limits: FetchLimits) -> Fetched:
        """The request takes a place among the waiting ones only if there are no records yet."""
        context = context_of(request)
        fetched = await self._broker.fetch(context, topic, partition, offset, replace(limits, wait_ms=0))
        if fetched.next_offset > offset or not limits.wait_ms:
            return fetched
        try:
            waiting = self._broker.fetch(context, topic, partition, offset, limits)
            return await self._service.waiting.hold(request.receive, waiting)
        except Draining:
            return fetched


def page_limits(request: Request, service: Service, timeout_ms_default: int = TIMEOUT_MS_DEFAULT) -> FetchLimits:
    """The bounds of a page by the query's ``timeout`` and ``max_bytes``. Raises `Unreadable`."""
    timeout_ms = query_number(request, "timeout", -1, OFFSET_MAX)
    size_bytes = query_number(request, "max_bytes", -1, OFFSET_MAX)
    if timeout_ms is None or timeout_ms < 0:
        timeout_ms = timeout_ms_default
    if size_bytes is None or size_bytes < 0:
        size_bytes = PAGE_BYTES_DEFAULT
    settings = service.settings
    return FetchLimits(
        settings.fetch_max_records,
        max(1, min(size_bytes, PAGE_BYTES_MAX, settings.fetch_max_bytes)),
        min(timeout_ms, settings.fetch_max_wait_ms),
    )
