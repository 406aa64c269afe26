"""A broker behind uvicorn on a free port, in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
from tests.peers.routed_broker import RoutedBroker

from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.http.app import create_app
from tidelog.services.http.server import DrainingServer, server_config
from tidelog.services.http.service import Service
from tidelog.services.peers.proof import PeerProofs
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Clock, Runtime, SystemClock

PEER_SECRET = "the secret of the tests"  # no broker outside these has it
SETTINGS = Settings(
    store="memory:",
    shards=2,
    num_partitions=2,
    request_read_timeout_ms=2_000,
    connections_max=8,
    forward_timeout_ms=3_000,
    commit_timeout_ms=3_000,
    shutdown_timeout_ms=2_000,
    peer_secret=PEER_SECRET,
)


@dataclass(frozen=True)
class ListeningBroker:
    """`http` calls it; `broker` says who leads."""

    url: str
    broker: RoutedBroker
    service: Service
    server: DrainingServer
    http: httpx.AsyncClient

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def proofs(secret: str = PEER_SECRET, clock: Clock | None = None) -> PeerProofs:
    """The proofs of a broker that has `secret`."""
    return PeerProofs(PeerSecrets(secret, clock or SystemClock()), clock or SystemClock())


@asynccontextmanager
async def listening_broker(settings: Settings = SETTINGS) -> AsyncIterator[ListeningBroker]:
    """A broker that believes that it has peers."""
    broker = open_broker(settings, Runtime())
    await broker.start()
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    routed = RoutedBroker(broker)
    in_cluster = replace(settings, etcd_endpoints="http://127.0.0.1:2379", advertised_address=url)
    app = create_app(routed, in_cluster, Runtime())
    service: Service = app.state.service
    server = DrainingServer(server_config(app, replace(settings, shutdown_timeout_ms=4_000)), service)
    serving = asyncio.ensure_future(server.serve([listening]))
    await server.listening.wait()
    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        yield ListeningBroker(url, routed, service, server, http)
    server.drain()
    await serving
    await service.aclose()
    await broker.aclose()
