"""``/v1/cluster``: the broker, its shards and the cluster as it sees it; ``…/brokers/{broker}/drain``."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.cluster import ClusterStatus, ShardStatus
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_cluster
from tidelog.services.http.v1.parameters import query_of

_ENCODER = msgspec.json.Encoder()
_NO_QUERY: frozenset[str] = frozenset()


class ShardJson(msgspec.Struct):
    """One shard that the asked broker leads."""

    shard: int
    leading: bool
    epoch: int
    wal_floor: int
    wal_next: int
    wal_bytes: int
    buffered_bytes: int
    partitions: int


class DamageJson(msgspec.Struct):
    """An object of a shard that the asked broker leads, which is missing or does not hold what was written."""

    object: str
    reason: str
    effect: str
    shard: int
    topic: str
    partition: int


class BrokerPlaceJson(msgspec.Struct):
    """One broker of the cluster."""

    broker: str
    address: str
    zone: str
    version: str
    started_at_ms: int
    shards: int
    draining: bool


class ShardPlaceJson(msgspec.Struct):
    """Who leads a shard, and who should."""

    shard: int
    leader: str | None
    epoch: int
    preferred: str | None


class MembersJson(msgspec.Struct):
    """The cluster as one broker sees it."""

    cluster_id: str
    name: str
    coordinator: str
    trouble: str
    brokers: list[BrokerPlaceJson]
    shards: list[ShardPlaceJson]


class ClusterJson(msgspec.Struct):
    """The asked broker, what it leads, and the cluster."""

    version: str
    store: str
    ready: bool
    reason: str
    buffered_bytes: int
    shards: list[ShardJson]
    damage: list[DamageJson]
    cluster: MembersJson


class ClusterRoutes:
    """The calls on the cluster."""

    def __init__(self, service: Service) -> None:
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        drain = "/v1/cluster/brokers/{broker}/drain"
        router.add_api_route("/v1/cluster", self.describe, **openapi_cluster.CLUSTER)
        router.add_api_route(drain, self.drain, **openapi_cluster.DRAIN)
        router.add_api_route(drain, self.undo_drain, **openapi_cluster.UNDO_DRAIN)

    async def describe(self, request: Request) -> Response:
        """Version, store, shards and brokers."""
        query_of(request, _NO_QUERY)
        status = self._broker.status()
        answer = ClusterJson(
            status.version,
            status.store_url,
            status.ready,
            status.reason,
            sum(shard.buffered_bytes for shard in status.shards),
            [_shard(shard) for shard in status.shards],
            [DamageJson(d.key, d.reason, d.effect, d.shard, d.topic, d.partition) for d in status.damages],
            _members(self._broker.cluster(context_of(request))),
        )
        return Response(_ENCODER.encode(answer), media_type=Media.JSON.value)

    async def drain(self, request: Request) -> Response:
        """Let a broker lead nothing."""
        return await self._drain(request, undo=False)

    async def undo_drain(self, request: Request) -> Response:
        """Let a broker lead shards again."""
        return await self._drain(request, undo=True)

    async def _drain(self, request: Request, *, undo: bool) -> Response:
        query_of(request, _NO_QUERY)
        await self._broker.drain(context_of(request), request.path_params["broker"], undo=undo)
        return Response(status_code=204)


def _shard(shard: ShardStatus) -> ShardJson:
    return msgspec.convert(shard, ShardJson, from_attributes=True)


def _members(cluster: ClusterStatus) -> MembersJson:
    brokers = [
        BrokerPlaceJson(b.broker_id, b.address, b.zone, b.version, b.started_at_ms, b.shards, b.draining)
        for b in cluster.brokers
    ]
    shards = [ShardPlaceJson(s.shard, s.leader, s.epoch, s.preferred) for s in cluster.shards]
    return MembersJson(cluster.cluster_id, cluster.name, cluster.coordinator, cluster.trouble, brokers, shards)
