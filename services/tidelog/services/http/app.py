"""The broker as a FastAPI application: routes around a `Broker`, and nothing that knows how one is built."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Protocol

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from tidelog.services.broker.api import Broker
from tidelog.services.http.broker_routes import BrokerRoutes
from tidelog.services.http.direct_route import DirectRoute
from tidelog.services.http.fetch_routes import FetchRoutes
from tidelog.services.http.follow_routes import FollowRoutes
from tidelog.services.http.problems import install_problems
from tidelog.services.http.produce_routes import ProduceRoutes
from tidelog.services.http.service import Service, open_service
from tidelog.services.http.topic_routes import TopicRoutes
from tidelog.services.settings import Settings
from tidelog.storage.runtime import Runtime

BROKER_SHARE = 0.5
"""Of ``shutdown.timeout.ms``: what the broker has to flush, after the connections had the rest to end."""
_DESCRIPTION = "A log service with Kafka's semantics whose only truth is an object-storage bucket."


class StartableBroker(Broker, Protocol):
    """A broker that is started before its first call and closed after its last."""

    async def start(self) -> None:
        """Take up the log. Raises `Unavailable`, `Denied`, `Corrupt`."""
        ...

    async def aclose(self) -> None:
        """Flush what is buffered, answer it, and let go."""
        ...


def create_app(
    broker: StartableBroker, settings: Settings, runtime: Runtime, registry: CollectorRegistry | None = None
) -> FastAPI:
    """The application. Its lifespan starts and closes `broker`; `app.state.service` is what the routes share."""
    service = open_service(broker, settings, runtime)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        async with running(broker, service):
            yield

    app = FastAPI(
        title="Tidelog", version=version("tidelog"), description=_DESCRIPTION, lifespan=lifespan, redoc_url=None
    )
    app.state.service = service
    app.router.route_class = DirectRoute
    for routes in (
        ProduceRoutes(service),
        FetchRoutes(service),
        FollowRoutes(service),
        TopicRoutes(service),
        BrokerRoutes(service, registry or CollectorRegistry()),
    ):
        routes.add_to(app.router)
    install_problems(app)
    return app


@asynccontextmanager
async def running(broker: StartableBroker, service: Service) -> AsyncGenerator[None]:
    """`broker` started, and closed within what is left of ``shutdown.timeout.ms``."""
    await broker.start()
    try:
        yield
    finally:
        service.connections.drain()
        async with asyncio.timeout(service.settings.shutdown_timeout_ms / 1000 * BROKER_SHARE):
            await broker.aclose()
        service.decoding.shutdown(wait=False, cancel_futures=True)
