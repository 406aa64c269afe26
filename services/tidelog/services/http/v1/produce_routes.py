"""``POST /v1/topics/{topic}/records`` and ``…/partitions/{p}/records``: appends records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.produce import Acks, Appended, ProduceOptions, ProducerSequence
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.bodies.body_reading import InFlightBody
from tidelog.services.http.bodies.decoding import BodyForm
from tidelog.services.http.bodies.line_body import LineFields
from tidelog.services.http.bodies.staged_body import check_count, read_staged
from tidelog.services.http.forwarding.partition_calls import PartitionRef
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import BODY_MEDIA, PARTITION_BODY_MEDIA, Media, body_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_records
from tidelog.services.http.v1.parameters import (
    OFFSET_MAX,
    optional_number,
    partition_of,
    query_of,
    topic_of,
    whole_number,
)
from tidelog.storage.object_store import Body
from tidelog.wire import headers
from tidelog.wire.errors import Unreadable
from tidelog.wire.records import AppendedRecords, ProduceAnswer

if TYPE_CHECKING:
    from tidelog.services.http.forwarding.forwarding import Forwarding

_QUERY = frozenset({"acks", "expected_offset", "key_field", "timestamp_field"})
_ACKS = {acks.value: acks for acks in Acks}
_PRODUCER_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SEQUENCE_HEADERS = (headers.PRODUCER_ID, headers.PRODUCER_EPOCH, headers.SEQUENCE)
_RAW_SEQUENCE_HEADERS = frozenset(name.lower().encode() for name in _SEQUENCE_HEADERS)
_PRODUCER_EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True)
class _Produce:
    """A produce, as the head of its request describes it."""

    topic: str
    options: ProduceOptions
    form: BodyForm


class ProduceRoutes:
    """The two produce calls."""

    def __init__(self, service: Service, forwarding: Forwarding | None) -> None:
        self._service = service
        self._forwarding = forwarding

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/topics/{topic}/records", self.produce, **openapi_records.PRODUCE)
        router.add_api_route(
            "/v1/topics/{topic}/partitions/{partition}/records", self.produce, **openapi_records.PRODUCE_PARTITION
        )

    async def produce(self, request: Request) -> Response:
        """Append records to a topic or to one partition. The key decides the partition, as in Kafka (murmur2). For one
        partition, `expected_offset` makes the call conditional, and the producer headers make it idempotent."""
        query, context = query_of(request, _QUERY), context_of(request)
        partition = partition_of(request) if "partition" in request.path_params else None
        options = _options(request, query, partition, auto_create=not context.from_peer)
        media = body_media(request, BODY_MEDIA if partition is None else PARTITION_BODY_MEDIA)
        fields = LineFields(query.get("key_field"), query.get("timestamp_field"))
        _check_fields(media, fields)
        limit_bytes = self._service.body_limit_bytes(request)
        produce = _Produce(topic_of(request), options, BodyForm(media, fields, limit_bytes))
        if self._forwarding and partition is not None:
            ref, sequenced = PartitionRef(produce.topic, partition), options.producer is not None
            append = partial(self._append, context.not_forwarded(), produce)
            return await self._forwarding.produce(request, ref, query, sequenced=sequenced, append=append)
        bodies = self._service.bodies
        with bodies.in_flight(limit_bytes) as held:
            return await self._append(context, produce, await bodies.read(request, held), held)

    async def _append(self, context: RequestContext, produce: _Produce, body: Body, held: InFlightBody) -> Response:
        if produce.form.media is Media.STAGED:
            return await self._append_staged(context, produce, body, held)
        draft = await self._service.decoding.draft(produce.form, body, held)
        del body  # memory that the records do not view must not be held until the commit
        appended = await self._service.broker.produce(context, produce.topic, draft, produce.options)
        return _answer(produce.topic, appended, produce.options.acks)

    async def _append_staged(
        self, context: RequestContext, produce: _Produce, body: Body, held: InFlightBody
    ) -> Response:
        """Append the records that `body` names."""
        producer = produce.options.producer
        if producer is None:
            raise Unreadable(
                f"staged records need a producer: send {', '.join(_SEQUENCE_HEADERS)}", field=headers.PRODUCER_ID
            )
        staged, records = await read_staged(self._service.broker.staging, context, body, held)
        draft = await self._service.decoding.draft(replace(produce.form, media=Media.ARROW), records, held)
        check_count(staged, draft.records.num_rows)
        del records
        producer = replace(producer, age_s=staged.age_ms / 1000)
        options = replace(produce.options, producer=producer, auto_create=False)
        appended = await self._service.broker.produce(context, produce.topic, draft, options)
        return _answer(produce.topic, appended, options.acks)


def _options(request: Request, query: Mapping[str, str], partition: int | None, *, auto_create: bool) -> ProduceOptions:
    acks = _ACKS.get(query.get("acks", Acks.ALL.value))
    if acks is None:
        raise Unreadable(f"acks must be 0, 1 or all, not {query['acks'][:80]!r}", field="acks")
    expected_offset = optional_number(query, "expected_offset", 0, OFFSET_MAX)
    producer = _producer(request)
    if partition is None and (expected_offset is not None or producer is not None):
        field = "expected_offset" if expected_offset is not None else headers.PRODUCER_ID
        raise Unreadable(
            f"{field} needs a partition: send the request to /v1/topics/{{topic}}/partitions/{{p}}/records", field=field
        )
    return ProduceOptions(acks, partition, expected_offset, producer, auto_create)


def _producer(request: Request) -> ProducerSequence | None:
    """The sequence in the three producer headers; None without them."""
    if _RAW_SEQUENCE_HEADERS.isdisjoint(dict(request.scope["headers"])):
        return None
    names = _SEQUENCE_HEADERS
    missing = next((name for name in names if name not in request.headers), None)
    if missing is not None:
        raise Unreadable(f"{missing} is missing: send {', '.join(names)} together or none of them", field=missing)
    producer_id, epoch, sequence = (request.headers[name] for name in names)
    if not _PRODUCER_ID.fullmatch(producer_id):
        raise Unreadable(f"{names[0]} must be 1 to 128 characters of A-Z a-z 0-9 . _ -", field=names[0])
    return ProducerSequence(
        producer_id,
        whole_number(epoch, names[1], 0, _PRODUCER_EPOCH_MAX),
        whole_number(sequence, names[2], 0, OFFSET_MAX),
    )


def _check_fields(media: Media, fields: LineFields) -> None:
    for name, path in (("key_field", fields.key), ("timestamp_field", fields.timestamp)):
        if path is None:
            continue
        if media not in (Media.NDJSON, Media.TEXT):
            raise Unreadable(
                f"{name} applies to lines only: send {Media.NDJSON.value} or {Media.TEXT.value}", field=name
            )
        if not all(path.split(".")):
            raise Unreadable(f"{name} must be a path such as user.id, not {path[:80]!r}", field=name)


def _answer(topic: str, appended: Sequence[Appended], acks: Acks) -> Response:
    partitions = tuple(
        AppendedRecords(one.partition, one.base_offset, one.count, one.timestamp_ms, True if one.duplicate else UNSET)
        for one in appended
    )
    status = 202 if acks is Acks.NONE else 200
    return json_answer(ProduceAnswer(topic, partitions), status)
