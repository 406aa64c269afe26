"""``/v1/cluster``: describes this broker, its costs and the cluster as it sees it, drains brokers, and raises the
feature level."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.cluster import BrokerStatus, ClusterStatus
from tidelog.services.broker.api.costs import BrokerCosts, TopicCost
from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_admin
from tidelog.services.http.v1.json_bodies import json_body
from tidelog.services.http.v1.parameters import NO_QUERY, query_of
from tidelog.services.http.v1.request_forms import FeatureLevelForm
from tidelog.storage.stores.counting import RequestCounts
from tidelog.wire.cluster import (
    ClusterDescription,
    DamageDescription,
    MemberDescription,
    MembershipDescription,
    PlacementDescription,
    ShardDescription,
)
from tidelog.wire.costs import CostDescription, TopicCostDescription

_DIGITS = 3
_FEATURE_LEVEL = msgspec.json.Decoder(FeatureLevelForm)


class ClusterRoutes:
    """The calls on the cluster."""

    def __init__(self, service: Service) -> None:
        self._broker = service.broker
        self._service = service

    def add_to(self, router: APIRouter) -> None:
        drain = "/v1/cluster/brokers/{broker}/drain"
        router.add_api_route("/v1/cluster", self.describe, **openapi_admin.CLUSTER)
        router.add_api_route("/v1/cluster/cost", self.cost, **openapi_admin.COST)
        router.add_api_route(drain, self.drain, **openapi_admin.DRAIN)
        router.add_api_route(drain, self.undo_drain, **openapi_admin.UNDO_DRAIN)
        router.add_api_route("/v1/cluster/feature-level", self.raise_feature_level, **openapi_admin.FEATURE_LEVEL)

    async def describe(self, request: Request) -> Response:
        """Describe this broker, the shards that it leads, and the cluster as it sees it: brokers, leaders, epochs."""
        query_of(request, NO_QUERY)
        return json_answer(_cluster(self._broker.status(), self._broker.cluster(context_of(request))))

    async def cost(self, request: Request) -> Response:
        """Requests that this broker sent to the store since it started, by topic, and the data in the bucket that
        belongs to the shards it leads. The numbers of all brokers together are the cluster's."""
        query_of(request, NO_QUERY)
        return json_answer(_cost(await self._broker.costs(context_of(request))))

    async def drain(self, request: Request) -> Response:
        """Drain a broker: its shards move to other brokers, one by one, and it leads none until it starts again."""
        return await self._drain(request, undo=False)

    async def undo_drain(self, request: Request) -> Response:
        """Undo a drain: the broker gets its fair share of shards again."""
        return await self._drain(request, undo=True)

    async def raise_feature_level(self, request: Request) -> Response:
        """Let writers use the formats of a feature level, for ever. Every live broker must know it."""
        level = parse_typed(_FEATURE_LEVEL, await json_body(self._service, request)).level
        await self._broker.raise_feature_level(context_of(request), level)
        return Response(status_code=204)

    async def _drain(self, request: Request, *, undo: bool) -> Response:
        query_of(request, NO_QUERY)
        await self._broker.drain(context_of(request), request.path_params["broker"], undo=undo)
        return Response(status_code=204)


def _cluster(status: BrokerStatus, cluster: ClusterStatus) -> ClusterDescription:
    return ClusterDescription(
        version=status.version,
        store=status.store_url,
        ready=status.ready,
        reason=status.reason,
        buffered_bytes=sum(shard.buffered_bytes for shard in status.shards),
        groups=status.groups,
        group_members=status.group_members,
        shards=tuple(msgspec.convert(shard, ShardDescription, from_attributes=True) for shard in status.shards),
        damage=tuple(
            DamageDescription(d.key, d.reason, d.effect, d.shard, d.topic, d.partition) for d in status.damages
        ),
        cluster=_membership(cluster),
    )


def _membership(cluster: ClusterStatus) -> MembershipDescription:
    brokers = tuple(
        MemberDescription(
            b.broker_id, b.address, b.zone, b.version, b.started_at_ms, b.shards, b.draining, b.feature_level
        )
        for b in cluster.brokers
    )
    shards = tuple(PlacementDescription(s.shard, s.leader, s.epoch, s.preferred) for s in cluster.shards)
    return MembershipDescription(
        cluster.cluster_id,
        cluster.name,
        cluster.coordinator,
        cluster.trouble,
        brokers,
        shards,
        cluster.feature_level,
    )


def _cost(costs: BrokerCosts) -> CostDescription:
    return CostDescription(
        costs.broker_id,
        costs.store_url,
        costs.since_ms,
        costs.now_ms,
        tuple(costs.shards),
        costs.shards_total,
        tuple(_topic(topic) for topic in costs.topics),
        _rounded(costs.rest),
    )


def _topic(cost: TopicCost) -> TopicCostDescription:
    counts, archive, cold = cost.counts, cost.archive, cost.archive.cold
    return TopicCostDescription(
        topic=cost.topic,
        requests=_rounded(cost.requests),
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


def _rounded(counts: RequestCounts) -> RequestCounts:
    """Sums of parts of requests differ a little from whole numbers and from 0."""
    parts = (counts.puts, counts.gets, counts.lists, counts.heads, counts.deletes)
    return RequestCounts(*(max(0.0, round(part, _DIGITS)) for part in parts))
