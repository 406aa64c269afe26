"""A client of Kafka's protocol that speaks every version, by kio's classes: the other side of `protocol.messages`."""

from __future__ import annotations

import asyncio
import io
import itertools
from typing import Any

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

LENGTH_BYTES = 4


def request_of(api_key: int, version: int, **fields: Any) -> Any:
    """A request of `version`."""
    return load_request_schema(api_key, version)(**fields)


def nested_of(api_key: int, version: int, *names: str) -> tuple[Any, ...]:
    """The classes `names` that requests of `version` consist of."""
    module = load_payload_module(api_key, version, EntityType.request)
    return tuple(getattr(module, name) for name in names)


def framed(request: Any, correlation_id: int, client_id: str | None = "kio") -> bytes:
    """`request` as it is sent, with its length and header."""
    header = request.__header_schema__
    written = io.BytesIO()
    entity_writer(header)(
        written,
        header(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=correlation_id,
            client_id=client_id,
        ),
    )
    entity_writer(type(request))(written, request)
    return len(written.getvalue()).to_bytes(LENGTH_BYTES, "big") + written.getvalue()


def parsed(frame: bytes, schema: Any) -> tuple[int, Any]:
    """The correlation id and the message in the `frame` of an answer. Every byte belongs to one of them."""
    header, head_bytes = entity_reader(schema.__header_schema__)(frame, 0)
    answer, size = entity_reader(schema)(frame, head_bytes)
    assert head_bytes + size == len(frame), "the answer ends with its last field"
    return header.correlation_id, answer


class KioClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._ids = itertools.count(1)

    @classmethod
    async def connect(cls, host: str, port: int) -> KioClient:
        return cls(*await asyncio.open_connection(host, port))

    async def another(self) -> KioClient:
        """A further connection to the same broker."""
        host, port = self.writer.get_extra_info("peername")[:2]
        return await KioClient.connect(host, port)

    async def ask(self, request: Any) -> Any:
        """Send `request`, and return the answer."""
        return await self.answer_to(request, self.send(request))

    def send(self, request: Any) -> int:
        """Send `request` without waiting. Returns its correlation id."""
        correlation_id = next(self._ids)
        self.writer.write(framed(request, correlation_id))
        return correlation_id

    async def answer_to(self, request: Any, correlation_id: int) -> Any:
        """The next answer, which must be the one to `request`."""
        found, answer = parsed(await self.frame(), load_response_schema(request.__api_key__, request.__version__))
        assert found == correlation_id, "answers come in the order of requests"
        return answer

    async def frame(self) -> bytes:
        """The next frame."""
        async with asyncio.timeout(20):
            size = int.from_bytes(await self.reader.readexactly(LENGTH_BYTES), "big")
            return await self.reader.readexactly(size)

    async def is_ended(self) -> bool:
        """Wait until the broker has closed the connection without a further byte."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def aclose(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)
