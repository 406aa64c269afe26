"""``POST /topics/{topic}`` and ``POST /topics/{topic}/partitions/{partition}``: appends records, acknowledged once they
are in the bucket (`acks=all`)."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.kafka_rest.gathered_produce import GatheredProduce
from tidelog.services.http.kafka_rest.produce_body import decode_records, decode_rows
from tidelog.services.http.kafka_rest.record_places import Places, placed
from tidelog.services.http.kafka_rest.rest_answer import partition_number, topic_name
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError, message_of, record_code_of
from tidelog.services.http.kafka_rest.rest_media import Format, body_format, management_media
from tidelog.services.http.kafka_rest.rest_routes import RestRoutes
from tidelog.services.http.service import Service
from tidelog.storage.errors import Invalid, NotFound, TidelogError

GATHERED_BYTES_MAX = 1 << 13
"""A smaller body is appended together with others that arrive at the same time."""
_TAIL = b',"key_schema_id":null,"value_schema_id":null}'


class NotStored(msgspec.Struct, frozen=True):
    """A record that is not stored, or not known to be, in the place of its offset."""

    error_code: int
    error: str


def _encoded(value: object) -> NotStored:
    assert isinstance(value, TidelogError), "places are encoded otherwise"
    return NotStored(record_code_of(value), message_of(value))


_ENCODER = msgspec.json.Encoder(enc_hook=_encoded)


class ProduceCalls:
    """The two produce calls."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._broker = service.broker
        self._gathered = GatheredProduce(service.broker)

    def add_to(self, routes: RestRoutes) -> None:
        routes.add("POST", "/topics/{topic}", self.produce)
        routes.add("POST", "/topics/{topic}/partitions/{partition}", self.produce)

    async def produce(self, request: Request) -> Response:
        partition = partition_number(request) if "partition" in request.path_params else None
        kind, media = body_format(request), management_media(request)
        topic = topic_name(request)
        try:
            places = await self._places(request, kind, topic, partition)
        except NotFound as error:
            raise RestError(self._not_found(request, topic), f"Not found. {error}") from None
        except Invalid as error:
            if error.field == "partition" and partition is None:
                raise RestError(Code.PARTITION_NOT_FOUND, f"Partition not found. {error}") from None
            raise
        return Response(b'{"offsets":' + _ENCODER.encode(places) + _TAIL, media_type=media)

    async def _places(self, request: Request, kind: Format, topic: str, partition: int | None) -> Places:
        context, bodies = context_of(request), self._service.bodies
        with bodies.in_flight() as held:
            body = await bodies.read(request, held)
            if len(body) <= GATHERED_BYTES_MAX:
                rows = decode_rows(kind, body, self._service.settings.request_max_records)
                return await self._gathered.append(context, topic, partition, rows)
            draft = await self._service.decoding.records(partial(decode_records, kind), body, held)
            del body  # memory that the records do not view must not be held until the commit
            options = ProduceOptions(partition=partition, tell_each=partition is None)
            return placed(draft.records.num_rows, await self._broker.produce(context, topic, draft, options))

    def _not_found(self, request: Request, topic: str) -> Code:
        try:
            self._broker.topic(context_of(request), topic)
        except (NotFound, Invalid):
            return Code.TOPIC_NOT_FOUND
        return Code.PARTITION_NOT_FOUND
