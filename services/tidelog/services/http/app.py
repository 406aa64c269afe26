"""The HTTP interface of a `Broker` as a FastAPI application."""

from __future__ import annotations

from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from tidelog.services.doors.front_door import ServedBroker
from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.http.answers.problems import ProblemAnswers
from tidelog.services.http.forwarding.group_calls import GroupCallRoutes
from tidelog.services.http.front.host_check import HostCheck, host_name
from tidelog.services.http.front.http_front import FrontChecks, HttpFront
from tidelog.services.http.front.origin_check import OriginCheck
from tidelog.services.http.front.request_context import RequestContexts
from tidelog.services.http.kafka_rest.rest_lane import RestLane
from tidelog.services.http.kafka_rest.seen_address import SeenAddresses
from tidelog.services.http.metrics.broker_collector import BrokerCollector
from tidelog.services.http.metrics.http_collector import HttpCollector
from tidelog.services.http.metrics.kafka_collector import KafkaCollector
from tidelog.services.http.service import Service, open_service
from tidelog.services.http.v1.broker_routes import BrokerRoutes
from tidelog.services.http.v1.cluster_routes import ClusterRoutes
from tidelog.services.http.v1.direct_lane import DirectLane, DirectRoute, Endpoint
from tidelog.services.http.v1.fetch_routes import FetchRoutes
from tidelog.services.http.v1.follow_routes import FollowRoutes
from tidelog.services.http.v1.group_routes import GroupRoutes
from tidelog.services.http.v1.log_routes import LogRoutes
from tidelog.services.http.v1.offset_routes import OffsetRoutes
from tidelog.services.http.v1.openapi_parts import add_schemas
from tidelog.services.http.v1.part_routes import PartRoutes
from tidelog.services.http.v1.poll_routes import PollRoutes
from tidelog.services.http.v1.produce_routes import ProduceRoutes
from tidelog.services.http.v1.staging_routes import StagingRoutes
from tidelog.services.http.v1.topic_routes import TopicRoutes
from tidelog.services.peers.proof import PeerProofs
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime

if TYPE_CHECKING:
    from tidelog.services.http.forwarding.forwarding import Forwarding

_DOCS_PAGE = resources.files(__package__).joinpath("docs.html").read_bytes()
_DESCRIPTION = "A log service with Kafka's semantics that stores all data in an object-storage bucket."


class BrokerApp(FastAPI):
    """A FastAPI application behind an `HttpFront`, a `RestLane` and a `DirectLane`."""

    front: HttpFront

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.front(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The description of the interface, with the schemas of all bodies."""
        if self.openapi_schema is None:
            self.openapi_schema = add_schemas(super().openapi())
        return self.openapi_schema

    async def routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers requests that the direct lane does not answer."""
        await super().__call__(scope, receive, send)


def create_app(
    broker: ServedBroker, settings: Settings, runtime: Runtime, kafka_counts: KafkaCounts | None = None
) -> FastAPI:
    """The application around a `broker` that has started. `app.state.service` is the `Service` of the routes.
    `kafka_counts`: those of the Kafka door, if there is one."""
    proofs = PeerProofs(broker.peer_secrets, runtime.clock)
    service = open_service(broker, settings, runtime, proofs)
    app = BrokerApp(
        title="Tidelog",
        version=version("tidelog"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # otherwise looked up at every request
    )
    app.state.service = service
    problems = ProblemAnswers(service.problems)
    problems.install(app)
    contexts, checks = RequestContexts(runtime), _checks(settings, proofs)
    v1 = DirectLane(app.routed, *_add_routes(app, service, _registry(broker, service, kafka_counts)), problems.answer)
    addresses = SeenAddresses(checks.hosts.allows, settings.own_address)
    rest = RestLane(v1, service, addresses, problems.answer)
    app.front = HttpFront(rest, checks, contexts, service.requests, rest.answer_error, lambda: service.waiting.draining)
    return app


def _add_routes(app: FastAPI, service: Service, registry: CollectorRegistry) -> tuple[Endpoint, Endpoint]:
    """Returns the endpoints of produce and fetch."""
    forwarding = _forwarding(service)
    produce, fetch = ProduceRoutes(service, forwarding), FetchRoutes(service, forwarding)
    reads = (PartRoutes(service), PollRoutes(service), FollowRoutes(service), LogRoutes(service), OffsetRoutes(service))
    others = (GroupRoutes(service), TopicRoutes(service), StagingRoutes(service), ClusterRoutes(service))
    app.router.route_class = DirectRoute
    for routes in (produce, fetch, *reads, *others, BrokerRoutes(service, registry)):
        routes.add_to(app.router)
    if service.peers is not None:
        GroupCallRoutes(service).add_to(app.router)
    app.add_api_route("/docs", _docs, include_in_schema=False)
    return produce.produce, fetch.fetch


def _checks(settings: Settings, proofs: PeerProofs) -> FrontChecks:
    own = settings.own_address
    hosts = HostCheck((settings.host, host_name(urlsplit(own).netloc)), _listed(settings.http_hosts_allowed))
    return FrontChecks(hosts, OriginCheck((own,), _listed(settings.http_origins_allowed)), proofs)


def _listed(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _forwarding(service: Service) -> Forwarding | None:
    """None for a broker without peers, so that its calls cost nothing extra."""
    if service.peers is None:
        return None
    from tidelog.services.http.forwarding.forwarding import Forwarding

    return Forwarding(service, service.peers)


def _registry(broker: ServedBroker, service: Service, kafka_counts: KafkaCounts | None) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    registry.register(HttpCollector(service))
    if kafka_counts is not None:
        registry.register(KafkaCollector(kafka_counts))
    ProcessCollector(registry=registry)
    return registry


async def _docs(_request: Request) -> Response:
    """A page that shows `/openapi.json`. FastAPI's own page loads scripts from a CDN, which many brokers cannot
    reach."""
    return HTMLResponse(_DOCS_PAGE)
