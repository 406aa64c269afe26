"""The broker as a FastAPI application: routes around a `Broker`, and nothing that knows how one is built."""

from __future__ import annotations

from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from tidelog.services.broker.served_broker import ServedBroker
from tidelog.services.http.answers.problems import ProblemTeller
from tidelog.services.http.front.host_check import HostCheck, host_name
from tidelog.services.http.front.http_front import FrontChecks, HttpFront
from tidelog.services.http.front.origin_check import OriginCheck
from tidelog.services.http.front.request_context import RequestContexts
from tidelog.services.http.metrics.broker_collector import BrokerCollector
from tidelog.services.http.metrics.cluster_collector import ClusterCollector
from tidelog.services.http.metrics.http_collector import HttpCollector
from tidelog.services.http.service import Service, open_service
from tidelog.services.http.v1.broker_routes import BrokerRoutes
from tidelog.services.http.v1.cluster_routes import ClusterRoutes
from tidelog.services.http.v1.cost_routes import CostRoutes
from tidelog.services.http.v1.direct_lane import DirectLane
from tidelog.services.http.v1.direct_route import DirectRoute
from tidelog.services.http.v1.fetch_routes import FetchRoutes
from tidelog.services.http.v1.follow_routes import FollowRoutes
from tidelog.services.http.v1.produce_routes import ProduceRoutes
from tidelog.services.http.v1.record_deletion_routes import RecordDeletionRoutes
from tidelog.services.http.v1.topic_routes import TopicRoutes
from tidelog.services.peers.proof import PeerProofs
from tidelog.services.runtime.settings import Settings
from tidelog.storage.runtime import Runtime

if TYPE_CHECKING:
    from tidelog.services.http.forwarding.forwarding import Forwarding

_DOCS_PAGE = resources.files(__package__).joinpath("docs.html").read_bytes()
_DESCRIPTION = "A log service with Kafka's semantics whose only truth is an object-storage bucket."


class BrokerApp(FastAPI):
    """A FastAPI application behind an `HttpFront` and a `DirectLane`, which are set once there are routes."""

    front: HttpFront

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.front(scope, receive, send)

    async def routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the lane does not answer itself: FastAPI's own way."""
        await super().__call__(scope, receive, send)


def create_app(broker: ServedBroker, settings: Settings, runtime: Runtime) -> FastAPI:
    """The application around a `broker` that has started. `app.state.service`: what the routes share."""
    proofs = PeerProofs(broker.peer_secrets, runtime.clock)
    service = open_service(broker, settings, runtime, proofs)

    app = BrokerApp(
        title="Tidelog",
        version=version("tidelog"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # asked for at every request otherwise
    )
    app.state.service = service
    app.router.route_class = DirectRoute
    forwarding = _forwarding(service)
    produce, fetch = ProduceRoutes(service, forwarding), FetchRoutes(service, forwarding)
    for routes in (
        produce,
        fetch,
        FollowRoutes(service),
        TopicRoutes(service),
        RecordDeletionRoutes(service),
        BrokerRoutes(service, _registry(broker, service)),
        ClusterRoutes(service),
        CostRoutes(service),
    ):
        routes.add_to(app.router)
    app.add_api_route("/docs", _docs, include_in_schema=False)
    problems = ProblemTeller(service.problems)
    problems.install(app)
    lane = DirectLane(app.routed, produce.produce, fetch.fetch, problems.tell)
    contexts, checks = RequestContexts(runtime), _checks(settings, proofs)
    app.front = HttpFront(lane, checks, contexts, service.requests, problems.tell, lambda: service.connections.draining)
    return app


def _checks(settings: Settings, proofs: PeerProofs) -> FrontChecks:
    own = settings.own_address
    hosts = HostCheck((settings.host, host_name(urlsplit(own).netloc)), _listed(settings.http_hosts_allowed))
    return FrontChecks(hosts, OriginCheck((own,), _listed(settings.http_origins_allowed)), proofs)


def _listed(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _forwarding(service: Service) -> Forwarding | None:
    """None for a broker alone, whose calls are then as cheap as if there were no other."""
    if service.peers is None:
        return None
    from tidelog.services.http.forwarding.forwarding import Forwarding

    return Forwarding(service, service.peers)


def _registry(broker: ServedBroker, service: Service) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    registry.register(ClusterCollector(broker))
    registry.register(HttpCollector(service))
    ProcessCollector(registry=registry)
    return registry


async def _docs(_request: Request) -> Response:
    """A page of our own that draws `/openapi.json`: FastAPI's loads its scripts from a CDN, and a broker often stands
    where there is none."""
    return HTMLResponse(_DOCS_PAGE)
