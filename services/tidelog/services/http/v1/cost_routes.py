"""``/v1/cluster/cost``: what the asked broker has cost, in requests and bytes. Whoever asks knows the prices."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.costs import BrokerCosts, TopicCost
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_cost
from tidelog.services.http.v1.parameters import query_of
from tidelog.storage.stores.counting import RequestCounts

_ENCODER = msgspec.json.Encoder()
_NO_QUERY: frozenset[str] = frozenset()
_DIGITS = 3


class RequestsJson(msgspec.Struct):
    """Requests to the store; parts of those that several topics shared."""

    puts: float
    gets: float
    lists: float
    heads: float
    deletes: float


class TopicCostJson(msgspec.Struct):
    """One topic: totals since the broker started, and what lies there now."""

    topic: str
    requests: RequestsJson
    records_in: int
    bytes_in: int
    archived_bytes: int
    merged_bytes: int
    compacted_bytes: int
    partitions: int
    partitions_known: int
    hot_bytes: int
    debt_bytes: int
    debt_age_ms: int
    segments: int
    cold_records: int
    cold_bytes: int
    cold_raw_bytes: int
    garbage_objects: int
    garbage_bytes: int
    clean_offsets: int
    clean_records: int


class CostJson(msgspec.Struct):
    """One broker's; `rest` are the requests that are no topic's."""

    broker: str
    store: str
    since_ms: int
    now_ms: int
    shards: list[int]
    shards_total: int
    topics: list[TopicCostJson]
    rest: RequestsJson


class CostRoutes:
    """The call on what it costs."""

    def __init__(self, service: Service) -> None:
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/cluster/cost", self.cost, **openapi_cost.COST)

    async def cost(self, request: Request) -> Response:
        """The asked broker's own numbers; others are asked themselves."""
        query_of(request, _NO_QUERY)
        return Response(
            _ENCODER.encode(_cost(await self._broker.costs(context_of(request)))), media_type=Media.JSON.value
        )


def _cost(costs: BrokerCosts) -> CostJson:
    return CostJson(
        costs.broker_id,
        costs.store_url,
        costs.since_ms,
        costs.now_ms,
        list(costs.shards),
        costs.shards_total,
        [_topic(topic) for topic in costs.topics],
        _requests(costs.rest),
    )


def _topic(cost: TopicCost) -> TopicCostJson:
    counts, archive, cold = cost.counts, cost.archive, cost.archive.cold
    return TopicCostJson(
        topic=cost.topic,
        requests=_requests(cost.requests),
        records_in=counts.records_in,
        bytes_in=counts.bytes_in,
        archived_bytes=counts.archived_bytes,
        merged_bytes=counts.merged_bytes,
        compacted_bytes=counts.compacted_bytes,
        partitions=cost.partitions,
        partitions_known=cold.partitions,
        hot_bytes=archive.hot_bytes,
        debt_bytes=archive.debt_bytes,
        debt_age_ms=archive.debt_age_ms,
        segments=cold.segments,
        cold_records=cold.records,
        cold_bytes=cold.cold_bytes,
        cold_raw_bytes=cold.raw_bytes,
        garbage_objects=cold.garbage_objects,
        garbage_bytes=cold.garbage_bytes,
        clean_offsets=cold.clean_offsets,
        clean_records=cold.clean_records,
    )


def _requests(counts: RequestCounts) -> RequestsJson:
    """Sums of parts may miss a whole number, or nothing, by a little."""
    parts = (counts.puts, counts.gets, counts.lists, counts.heads, counts.deletes)
    return RequestsJson(*(max(0.0, round(part, _DIGITS)) for part in parts))
