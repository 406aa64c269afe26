"""Places a request: reads its header, makes its `Call`, and gives it to its API."""

from __future__ import annotations

import asyncio
import itertools
from importlib import import_module

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.listener.connection import Client
from tidelog.services.kafka.listener.placed_requests import PlacedRequest
from tidelog.services.kafka.protocol.api import Api, Call, Malformed
from tidelog.services.kafka.protocol.api_table import API_TABLE, API_VERSIONS, ServedApi
from tidelog.services.kafka.protocol.headers import RequestHeader, body_of, read_header
from tidelog.services.kafka.service import KafkaService

_PREFIX_DIGITS = 12


class Dispatcher:
    """The APIs of one broker. An API is loaded at its first request: most processes use few of them."""

    def __init__(self, service: KafkaService) -> None:
        self._service = service
        self._apis: dict[int, Api] = {}
        self._prefix = service.runtime.entropy.new_id()[:_PREFIX_DIGITS]
        self._count = itertools.count(1)

    async def place(self, frame: memoryview, client: Client) -> PlacedRequest:
        """Place the request in `frame`. Raises `Malformed`."""
        began_s = self._service.runtime.clock.monotonic()
        header = read_header(frame)
        served = _served(header)
        context = RequestContext(f"{self._prefix}-{next(self._count)}", client_id=header.client_id)
        body = body_of(frame, header, served) if served.serves(header.version) else frame[:0]
        call = Call(header.api_key, header.version, header.correlation_id, context, client.listener, client.host, body)
        answer = asyncio.ensure_future(await self._api(served).answer(call))
        return PlacedRequest(served, header.version, header.correlation_id, len(frame), began_s, answer, call.errors)

    def _api(self, served: ServedApi) -> Api:
        if served.key not in self._apis:
            module = import_module(f"tidelog.services.kafka.apis.{served.module}")
            self._apis[served.key] = getattr(module, served.implementation)(self._service)
        return self._apis[served.key]


def _served(header: RequestHeader) -> ServedApi:
    """The API of the request. Raises `Malformed` if it is not served in this version; ApiVersions answers any version,
    so that the client learns which there are (KIP-511)."""
    served = API_TABLE.get(header.api_key)
    if served is None:
        raise Malformed(
            f"the client {header.client_id!r} sent API key {header.api_key}, which this broker does not serve: "
            "ApiVersions lists what it serves"
        )
    if served.key != API_VERSIONS and not served.serves(header.version):
        raise Malformed(
            f"the client {header.client_id!r} sent {served.name} version {header.version}, and this broker serves "
            f"{served.lowest} to {served.highest}: use a client with these versions"
        )
    return served
