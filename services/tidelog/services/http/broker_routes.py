"""``/healthz``, ``/readyz``, ``/metrics`` and ``/v1/cluster``: the broker about itself."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.http import openapi_admin
from tidelog.services.http.media import Media
from tidelog.services.http.parameters import query_of
from tidelog.services.http.service import Service
from tidelog.storage.errors import Unavailable

_ENCODER = msgspec.json.Encoder()
_NO_QUERY: frozenset[str] = frozenset()


class ShardJson(msgspec.Struct):
    """One shard."""

    shard: int
    leading: bool
    epoch: int
    wal_floor: int
    wal_next: int
    wal_bytes: int
    buffered_bytes: int
    partitions: int


class ClusterJson(msgspec.Struct):
    """The cluster, which is one broker for now."""

    version: str
    store: str
    ready: bool
    reason: str
    buffered_bytes: int
    shards: list[ShardJson]


class BrokerRoutes:
    """The calls about the broker."""

    def __init__(self, service: Service, registry: CollectorRegistry) -> None:
        self._service = service
        self._registry = registry

    def add_to(self, router: APIRouter) -> None:
        for path, endpoint, description in (
            ("/healthz", self.health, openapi_admin.HEALTH),
            ("/readyz", self.ready, openapi_admin.READY),
            ("/metrics", self.metrics, openapi_admin.METRICS),
            ("/v1/cluster", self.cluster, openapi_admin.CLUSTER),
        ):
            router.add_api_route(path, endpoint, **description)

    async def health(self, _request: Request) -> Response:
        """200 while the process lives."""
        return Response(b'{"status":"alive"}', media_type=Media.JSON.value)

    async def ready(self, _request: Request) -> Response:
        """200 if the broker takes requests."""
        status = self._service.broker.status()
        if self._service.connections.draining:
            raise Unavailable("the broker is stopping: send to another")
        if not status.ready:
            raise Unavailable(f"the broker is not ready: {status.reason}")
        return Response(b'{"status":"ready"}', media_type=Media.JSON.value)

    async def metrics(self, _request: Request) -> Response:
        """Counters and gauges as Prometheus reads them."""
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def cluster(self, request: Request) -> Response:
        """Version, store and shards."""
        query_of(request, _NO_QUERY)
        status = self._service.broker.status()
        shards = [
            ShardJson(
                shard.shard,
                shard.leading,
                shard.epoch,
                shard.wal_floor,
                shard.wal_next,
                shard.wal_bytes,
                shard.buffered_bytes,
                shard.partitions,
            )
            for shard in status.shards
        ]
        buffered_bytes = sum(shard.buffered_bytes for shard in shards)
        cluster = ClusterJson(status.version, status.store_url, status.ready, status.reason, buffered_bytes, shards)
        return Response(_ENCODER.encode(cluster), media_type=Media.JSON.value)
