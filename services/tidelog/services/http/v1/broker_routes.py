"""``/healthz``, ``/readyz`` and ``/metrics``: the broker about itself."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.cluster import BrokerStatus
from tidelog.services.http.media import Media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_admin
from tidelog.storage.errors import Unavailable

_ENCODER = msgspec.json.Encoder()


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
        return Response(_ENCODER.encode(_ready(status)), media_type=Media.JSON.value)

    async def metrics(self, _request: Request) -> Response:
        """Counters and gauges as Prometheus reads them."""
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})


def _ready(status: BrokerStatus) -> dict[str, object]:
    """What a broker that takes requests says: `reason` tells what it cannot do, and the objects that are damaged are
    named; it serves the rest."""
    reason = {"reason": status.reason} if status.reason else {}
    damaged = {"damaged_objects": [damage.key for damage in status.damages]} if status.damages else {}
    return {"status": "ready", **reason, **damaged}
