"""``POST /v1/topics/{topic}/records`` and ``…/partitions/{p}/records``: records in, offsets out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from fastapi import APIRouter
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.produce import Acks, Appended, ProduceOptions, ProducerSequence
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.answers.problems import Unreadable
from tidelog.services.http.bodies.body_reading import InFlightBody
from tidelog.services.http.bodies.decoding import BodyForm
from tidelog.services.http.bodies.line_body import LineFields
from tidelog.services.http.forwarding.partition_calls import Place
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, body_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi
from tidelog.services.http.v1.parameters import (
    OFFSET_MAX,
    optional_number,
    partition_of,
    query_of,
    topic_of,
    whole_number,
)
from tidelog.storage.object_store import Body

if TYPE_CHECKING:
    from tidelog.services.http.forwarding.forwarding import Forwarding

_QUERY = frozenset({"acks", "expected_offset", "key_field", "timestamp_field"})
_ACKS = {acks.value: acks for acks in Acks}
_PRODUCER_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PRODUCER_EPOCH_MAX = 2**31 - 1
_ENCODER = msgspec.json.Encoder()


class AppendedJson(msgspec.Struct, omit_defaults=True):
    """Where the records of one partition went."""

    partition: int
    base_offset: int | None
    count: int
    timestamp: int
    duplicate: bool | UnsetType = UNSET


class ProducedJson(msgspec.Struct):
    """The answer to a produce."""

    topic: str
    partitions: list[AppendedJson]


@dataclass(frozen=True)
class _Wanted:
    """A produce, read from the head of its request."""

    topic: str
    options: ProduceOptions
    form: BodyForm


class ProduceRoutes:
    """The two produce calls."""

    def __init__(self, service: Service, forwarding: Forwarding | None) -> None:
        self._service = service
        self._forwarding = forwarding

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/topics/{topic}/records", self.produce, **openapi.PRODUCE)
        router.add_api_route(
            "/v1/topics/{topic}/partitions/{partition}/records", self.produce, **openapi.PRODUCE_PARTITION
        )

    async def produce(self, request: Request) -> Response:
        """Append records."""
        query, context = query_of(request, _QUERY), context_of(request)
        partition = partition_of(request) if "partition" in request.path_params else None
        options = _options(request, query, partition, auto_create=not context.from_peer)
        media = body_media(request)
        fields = LineFields(query.get("key_field"), query.get("timestamp_field"))
        _check_fields(media, fields)
        limit_bytes = self._service.body_limit_bytes(request)
        wanted = _Wanted(topic_of(request), options, BodyForm(media, fields, limit_bytes))
        if self._forwarding and partition is not None:
            place, sequenced = Place(wanted.topic, partition), options.producer is not None
            append = partial(self._append, context.not_forwarded(), wanted)
            return await self._forwarding.produce(request, place, query, sequenced=sequenced, append=append)
        bodies = self._service.bodies
        with bodies.in_flight(limit_bytes) as held:
            return await self._append(context, wanted, await bodies.read(request, held), held)

    async def _append(self, context: RequestContext, wanted: _Wanted, body: Body, held: InFlightBody) -> Response:
        draft = await self._service.decoding.draft(wanted.form, body, held)
        del body  # what the records do not view is not to wait for the commit with them
        appended = await self._service.broker.produce(context, wanted.topic, draft, wanted.options)
        return _answer(wanted.topic, appended, wanted.options.acks)


def _options(request: Request, query: Mapping[str, str], partition: int | None, *, auto_create: bool) -> ProduceOptions:
    acks = _ACKS.get(query.get("acks", Acks.ALL.value))
    if acks is None:
        raise Unreadable(f"acks is 0, 1 or all, not {query['acks'][:80]!r}", field="acks")
    expected_offset = optional_number(query, "expected_offset", 0, OFFSET_MAX)
    producer = _producer(request)
    if partition is None and (expected_offset is not None or producer is not None):
        field = "expected_offset" if expected_offset is not None else "Tidelog-Producer-Id"
        raise Unreadable(
            f"{field} is for one partition: send to /v1/topics/{{topic}}/partitions/{{p}}/records", field=field
        )
    return ProduceOptions(acks, partition, expected_offset, producer, auto_create)


def _producer(request: Request) -> ProducerSequence | None:
    """The three producer headers: all or none."""
    headers = request.headers
    names = ("Tidelog-Producer-Id", "Tidelog-Producer-Epoch", "Tidelog-Sequence")
    given = [name for name in names if name in headers]
    if not given:
        return None
    if len(given) < len(names):
        missing = next(name for name in names if name not in headers)
        raise Unreadable(f"{missing} is missing: send {', '.join(names)} together or none of them", field=missing)
    producer_id, epoch, sequence = (headers[name] for name in names)
    if not _PRODUCER_ID.fullmatch(producer_id):
        raise Unreadable("Tidelog-Producer-Id is 1 to 128 of A-Z a-z 0-9 . _ -", field=names[0])
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
            raise Unreadable(f"{name} is for lines: send {Media.NDJSON.value} or {Media.TEXT.value}", field=name)
        if not all(path.split(".")):
            raise Unreadable(f"{name} is a path as user.id, not {path[:80]!r}", field=name)


def _answer(topic: str, appended: Sequence[Appended], acks: Acks) -> Response:
    partitions = [
        AppendedJson(one.partition, one.base_offset, one.count, one.timestamp_ms, True if one.duplicate else UNSET)
        for one in appended
    ]
    status = 202 if acks is Acks.NONE else 200
    return Response(_ENCODER.encode(ProducedJson(topic, partitions)), status, media_type=Media.JSON.value)
