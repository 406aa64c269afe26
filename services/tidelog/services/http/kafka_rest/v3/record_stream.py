"""``POST /v3/clusters/{id}/topics/{topic}/records``: a stream of records, answered by a stream of lines.

Each record that arrives is answered by one line of JSON, in the same order: where it is, or why it was refused. Records
that arrive together are appended together, so a client that sends without waiting for answers is fast. An answer with a
status of 200 says that the request could be read; each line has its own `error_code`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog.services.broker.api.produce import Appended, ProduceOptions
from tidelog.services.http.bodies.body_reading import InFlightBody
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.kafka_rest.record_places import placed
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import check_management_body
from tidelog.services.http.kafka_rest.rest_routes import RestRoutes
from tidelog.services.http.kafka_rest.v3.cluster_reads import check_cluster, cluster_id_of
from tidelog.services.http.kafka_rest.v3.documents import Documents
from tidelog.services.http.kafka_rest.v3.record_forms import (
    RecordAnswer,
    RecordRefusal,
    Row,
    answer_of,
    draft_of_rows,
    refusal_of,
    row_of,
)
from tidelog.services.http.service import Service
from tidelog.storage.errors import Invalid, NotFound, TidelogError
from tidelog.wire.errors import ClientGone

_ENCODER = msgspec.json.Encoder()
Line = RecordAnswer | RecordRefusal


class RecordStreamCall:
    """The call that appends a stream of records."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, routes: RestRoutes) -> None:
        routes.add("POST", "/v3/clusters/{cluster}/topics/{topic}/records", self.append)

    async def append(self, request: Request) -> Response:
        check_management_body(request)
        cluster = self._service.broker.cluster(context_of(request))
        check_cluster(request, cluster)
        stream = _RecordStream(self._service, request, cluster_id_of(cluster))
        if "content-length" not in request.headers and "content-encoding" not in request.headers:
            return _StreamedLines(stream)
        bodies = self._service.bodies
        with bodies.in_flight() as held:
            body = await bodies.read(request, held)
            return Response(b"".join(await stream.whole(bytes(body))), media_type="application/json")


class _RecordStream:
    """The records of one request."""

    def __init__(self, service: Service, request: Request, cluster_id: str) -> None:
        self._service = service
        self._request = request
        self._context = context_of(request)
        self._topic: str = request.path_params["topic"]
        self._cluster_id = cluster_id
        self._documents = Documents(service.settings.request_max_bytes)

    async def whole(self, body: bytes) -> list[bytes]:
        """The lines for a whole body."""
        documents = self._documents.add(body)
        self._documents.finish()
        if not documents:
            raise Invalid("the body holds no record: send at least one")
        return await self._lines(documents)

    async def lines(self) -> AsyncGenerator[bytes]:
        """The lines, as records arrive. An error that ends the stream is its last line."""
        with self._service.bodies.in_flight() as held:
            try:
                more = True
                while more and not self._service.waiting.draining:
                    piece, more = await self._piece(held)
                    for line in await self._lines(self._documents.add(piece)):
                        yield line
                    held.give_back(len(piece))
                self._documents.finish()
            except ClientGone:
                return
            except TidelogError as error:
                yield _line(refusal_of(error))

    async def _piece(self, held: InFlightBody) -> tuple[bytes, bool]:
        bodies = self._service.bodies
        try:
            async with asyncio.timeout(bodies.timeout_s):
                message = await self._request.receive()
        except TimeoutError:
            raise bodies.too_slow() from None
        if message["type"] != "http.request":
            raise ClientGone("the client closed the connection before its body was complete")
        piece: bytes = message.get("body", b"")
        held.grow(len(piece))
        return piece, message.get("more_body", False)

    async def _lines(self, documents: Sequence[bytes]) -> list[bytes]:
        lines: list[Line | None] = [None] * len(documents)
        rows: dict[int, Row] = {}
        for place, document in enumerate(documents):
            try:
                rows[place] = row_of(document)
            except Invalid as error:
                lines[place] = refusal_of(error)
        while rows:
            places = list(rows)
            try:
                appended = await self._append([rows[place] for place in places])
            except TidelogError as error:
                wrong = getattr(error, "record", None)
                refused = places if wrong is None else [places[wrong]]
                for place in refused:
                    lines[place] = refusal_of(error)
                    del rows[place]
                continue
            for place, answer in zip(places, self._answers([rows[place] for place in places], appended), strict=True):
                lines[place] = answer
            break
        return [_line(line) for line in lines if line is not None]

    async def _append(self, rows: Sequence[Row]) -> Sequence[Appended]:
        draft = draft_of_rows(rows)
        try:
            return await self._service.broker.produce(self._context, self._topic, draft, ProduceOptions(tell_each=True))
        except NotFound as error:
            raise RestError(
                Code.UNKNOWN_TOPIC_PARTITION, f"This server does not host this topic-partition. {error}"
            ) from None

    def _answers(self, rows: Sequence[Row], appended: Sequence[Appended]) -> list[Line]:
        times = {one.partition: one.timestamp_ms for one in appended}
        return [
            refusal_of(place)
            if isinstance(place, TidelogError)
            else answer_of(row, self._cluster_id, self._topic, (place.partition, place.offset), times[place.partition])
            for row, place in zip(rows, placed(len(rows), appended), strict=True)
        ]


class _StreamedLines(Response):
    """Sends lines while the body arrives."""

    def __init__(self, stream: _RecordStream) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._stream.lines()) as lines:
            async for line in lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _line(line: Line) -> bytes:
    return _ENCODER.encode(line) + b"\r\n"
