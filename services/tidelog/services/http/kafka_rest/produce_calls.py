"""``POST /topics/{topic}`` and ``POST /topics/{topic}/partitions/{partition}``: appends records, acknowledged once they
are in the bucket (`acks=all`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.produce import Appended, ProduceOptions
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.kafka_rest.produce_body import decode_records
from tidelog.services.http.kafka_rest.rest_answer import partition_number, topic_name
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import body_format, management_media
from tidelog.services.http.kafka_rest.rest_routes import RestRoutes
from tidelog.services.http.service import Service
from tidelog.storage.errors import Invalid, NotFound

_TAIL = b',"key_schema_id":null,"value_schema_id":null}'


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where a record is."""

    partition: int
    offset: int


class ProduceCalls:
    """The two produce calls."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._broker = service.broker

    def add_to(self, routes: RestRoutes) -> None:
        routes.add("POST", "/topics/{topic}", self.produce)
        routes.add("POST", "/topics/{topic}/partitions/{partition}", self.produce)

    async def produce(self, request: Request) -> Response:
        partition = partition_number(request) if "partition" in request.path_params else None
        kind, media = body_format(request), management_media(request)
        topic, bodies = topic_name(request), self._service.bodies
        with bodies.in_flight() as held:
            body = await bodies.read(request, held)
            try:
                draft = await self._service.decoding.records(partial(decode_records, kind), body, held)
                del body  # memory that the records do not view must not be held until the commit
                options = ProduceOptions(partition=partition)
                appended = await self._broker.produce(context_of(request), topic, draft, options)
            except NotFound as error:
                raise RestError(self._not_found(request, topic), f"Not found. {error}") from None
            except Invalid as error:
                if error.field == "partition" and partition is None:
                    raise RestError(Code.PARTITION_NOT_FOUND, f"Partition not found. {error}") from None
                raise
        return Response(_answer(draft.records.num_rows, appended), media_type=media)

    def _not_found(self, request: Request, topic: str) -> Code:
        try:
            self._broker.topic(context_of(request), topic)
        except (NotFound, Invalid):
            return Code.TOPIC_NOT_FOUND
        return Code.PARTITION_NOT_FOUND


def _answer(count: int, appended: Sequence[Appended]) -> bytes:
    """The places of the records, in their order in the request."""
    places = placed(count, appended)
    return b'{"offsets":' + msgspec.json.encode(places) + _TAIL


def placed(count: int, appended: Sequence[Appended]) -> list[Placed]:
    """The place of each of `count` records."""
    if len(appended) == 1:
        one = appended[0]
        first = _base_offset(one)
        return [Placed(one.partition, offset) for offset in range(first, first + count)]
    partitions, offsets = np.empty(count, np.int64), np.empty(count, np.int64)
    for one in appended:
        assert one.rows is not None, "a share says which records it has"
        partitions[one.rows] = one.partition
        offsets[one.rows] = np.arange(_base_offset(one), _base_offset(one) + one.count)
    return list(map(Placed, partitions.tolist(), offsets.tolist()))


def _base_offset(one: Appended) -> int:
    assert one.base_offset is not None, "acks=all has an offset"
    return one.base_offset
