"""A real `LocalBroker` on a memory store, behind the application: called in-process, or over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx
import pytest
from fastapi import FastAPI
from tests.http.requests import offsets_of

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.app import create_app
from tidelog.services.http.server import DrainingServer, server_config
from tidelog.services.http.service import Service
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime

SETTINGS = Settings(
    store="memory:",
    shards=2,
    num_partitions=2,
    request_max_bytes=1 << 20,
    request_max_records=10_000,
    connections_max=9,
)


@pytest.fixture
def settings() -> Settings:
    """Small limits that a test can reach; a test module may override them."""
    return SETTINGS


@pytest.fixture
async def broker(settings: Settings) -> AsyncIterator[LocalBroker]:
    started = open_broker(replace(settings, shutdown_timeout_ms=2_000), Runtime())
    await started.start()
    yield started
    await started.aclose()


@pytest.fixture
def app(broker: LocalBroker, settings: Settings) -> FastAPI:
    return create_app(broker, settings, Runtime())


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Calls the application in this process, without a socket."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        yield http


@dataclass(frozen=True)
class Served:
    """A broker that listens on a socket of this machine."""

    host: str
    port: int
    service: Service
    server: DrainingServer

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@pytest.fixture
async def served(app: FastAPI, settings: Settings) -> AsyncIterator[Served]:
    """The application behind uvicorn, on a free port."""
    listening = socket.create_server(("127.0.0.1", 0))
    service: Service = app.state.service
    server = DrainingServer(server_config(app, replace(settings, shutdown_timeout_ms=4_000)), service)
    serving = asyncio.ensure_future(server.serve([listening]))
    await server.listening.wait()
    yield Served("127.0.0.1", listening.getsockname()[1], service, server)
    server.drain()
    await serving


@pytest.fixture
async def live(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    """Calls the broker over a socket."""
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as http:
        yield http


@pytest.fixture
async def web(client: httpx.AsyncClient) -> dict[int, int]:
    """A topic `web` of two partitions with three records in partition 0; its offsets."""
    await client.post("/v1/topics", json={"name": "web", "partitions": 2})
    records = [{"key": "a", "value": "one"}, {"value": {"base64": "/w=="}}, {"value": None}]
    answer = await client.post("/v1/topics/web/partitions/0/records", json={"records": records})
    assert answer.status_code == 200, answer.text
    return await offsets_of(client, "web")
