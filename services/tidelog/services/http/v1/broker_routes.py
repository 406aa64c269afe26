"""``/healthz``, ``/readyz`` and ``/metrics``: the state of this broker."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_admin
from tidelog.storage.errors import Unavailable
from tidelog.wire.cluster import HealthAnswer, ReadyAnswer


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
        return json_answer(HealthAnswer("alive"))

    async def ready(self, _request: Request) -> Response:
        """200 if the broker serves requests, otherwise 503 with the reason. `reason` says which part of its work a
        ready broker cannot do. `damaged_objects` lists damaged objects of its shards; it serves everything else."""
        status = self._service.broker.status()
        if self._service.waiting.draining:
            raise Unavailable("the broker is stopping: send the request to another broker")
        if not status.ready:
            raise Unavailable(f"the broker is not ready: {status.reason}")
        return json_answer(ReadyAnswer("ready", status.reason, tuple(damage.key for damage in status.damages)))

    async def metrics(self, _request: Request) -> Response:
        """Metrics in the text format of Prometheus."""
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})
