"""``/consumers/{group}…``: consumer instances. Any broker takes any of these calls.

An instance exists from its creation to its deletion, or until it was unused for `IDLE_MS`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidelog.coordinator.groups.group_step import TopicInfo
from tidelog.coordinator.groups.subscriptions import check_pattern, matching
from tidelog.services.broker.api.fetch import Anchor, Position
from tidelog.services.consuming.assigned_partitions import Place, grouped
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.kafka_rest.instances.instance_forms import (
    OFFSETS,
    PARTITIONS,
    POSITIONS,
    SUBSCRIPTION,
    TIMEOUT_MS_MAX,
    OffsetForm,
    OffsetsForm,
    PartitionForm,
    new_instance,
    parsed_or,
    timestamp_ms,
)
from tidelog.services.http.kafka_rest.instances.instance_membership import Membership, resolved
from tidelog.services.http.kafka_rest.instances.instance_reads import InstanceReads, ReadBounds
from tidelog.services.http.kafka_rest.instances.instance_state import (
    EXCLUSIVE,
    Instance,
    assigned,
    committed,
    rewound,
    sought,
    subscribed,
    to_commit,
    unsubscribed,
)
from tidelog.services.http.kafka_rest.instances.kept_instance import InstanceStore, KeptInstance
from tidelog.services.http.kafka_rest.instances.page_sending import PageAnswer, Senders
from tidelog.services.http.kafka_rest.read_calls import page_limits
from tidelog.services.http.kafka_rest.rest_answer import OFFSET_MAX, query_number, rest_answer
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import answer_format, check_management_body, management_media
from tidelog.services.http.kafka_rest.rest_routes import RestRoutes
from tidelog.services.http.kafka_rest.seen_address import SeenAddresses
from tidelog.services.http.service import Service
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body
from tidelog.wire.groups import FetchOffsets, PartitionOffset

T = TypeVar("T")
IDLE_MS = 300_000
"""Bounded by ``group.max.session.timeout.ms``."""
_ID_DIGITS = 12
_ONE = "/consumers/{group}/instances/{instance}"


class Created(msgspec.Struct, frozen=True):
    """A new instance. Its calls are below `base_uri`."""

    instance_id: str
    base_uri: str


class ConsumerCalls:
    """The calls on consumer instances."""

    def __init__(self, service: Service, addresses: SeenAddresses) -> None:
        self._service = service
        self._broker = service.broker
        self._addresses = addresses
        idle_ms = min(IDLE_MS, service.settings.group_max_session_timeout_ms)
        self._store = InstanceStore(service.broker, idle_ms, service.runtime.entropy)
        self._membership = Membership(service.broker, idle_ms, service.runtime.clock)
        runtime = service.runtime
        senders = Senders(service.broker, runtime.entropy.new_id(), service.settings.own_address, runtime.clock)
        self._reads = InstanceReads(service.broker, self._store, self._membership, senders, runtime.clock)

    def add_to(self, routes: RestRoutes) -> None:
        routes.add("POST", "/consumers/{group}", self.create)
        routes.add("DELETE", _ONE, self.delete)
        routes.add("POST", f"{_ONE}/subscription", self.subscribe)
        routes.add("GET", f"{_ONE}/subscription", self.subscription)
        routes.add("DELETE", f"{_ONE}/subscription", self.unsubscribe)
        routes.add("POST", f"{_ONE}/assignments", self.assign)
        routes.add("GET", f"{_ONE}/assignments", self.assignments)
        routes.add("POST", f"{_ONE}/positions", self.seek)
        routes.add("POST", f"{_ONE}/positions/beginning", self.seek_to_beginning)
        routes.add("POST", f"{_ONE}/positions/end", self.seek_to_end)
        routes.add("GET", f"{_ONE}/records", self.records)
        routes.add("POST", f"{_ONE}/offsets", self.commit)
        routes.add("GET", f"{_ONE}/offsets", self.offsets)

    async def create(self, request: Request) -> Response:
        media, group = management_media(request), _group(request)
        name, config = new_instance(await self._body(request))
        made = self._service.runtime.entropy.new_id()[:_ID_DIGITS]
        name = name or f"rest-{made}"
        await self._store.create(context_of(request), group, name, Instance(config, f"{name}-{made}"))
        path = f"/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
        return rest_answer(Created(name, self._addresses.of(request) + path), media)

    async def delete(self, request: Request) -> Response:
        kept = await self._read(request)
        kept = await self._membership.auto_commit(kept.with_state(rewound(kept.state)))
        await self._store.delete(kept)
        await self._membership.leave(kept)
        return _done()

    async def subscribe(self, request: Request) -> Response:
        form = parse_typed(SUBSCRIPTION, await self._body(request))
        topics = form.topics or ()
        if topics and form.topic_pattern is not None:
            raise RestError(Code.ILLEGAL_STATE, EXCLUSIVE)
        if not topics and not form.topic_pattern:
            raise Invalid("a subscription has topics or a topic_pattern", field="topics")
        if form.topic_pattern:
            check_pattern(form.topic_pattern)
        await self._change(request, lambda state: subscribed(state, topics, form.topic_pattern))
        return _done()

    async def subscription(self, request: Request) -> Response:
        media, kept = management_media(request), await self._read(request)
        topics = set(kept.state.topics)
        if kept.state.topic_pattern is not None:
            known = self._broker.topics(kept.context)
            names = {topic.name: TopicInfo(topic.topic_id, topic.partition_count) for topic in known}
            topics = set(matching(kept.state.topic_pattern, names))
        return rest_answer({"topics": sorted(topics)}, media)

    async def unsubscribe(self, request: Request) -> Response:
        kept = await self._read(request)
        await self._membership.auto_commit(kept.with_state(rewound(kept.state)))
        before: list[KeptInstance] = []

        def change(kept: KeptInstance) -> Instance:
            before[:] = [kept]
            return unsubscribed(kept.state)

        await self._store.change(context_of(request), *_names(request), change)
        await self._membership.leave(before[0])
        return _done()

    async def assign(self, request: Request) -> Response:
        form = parse_typed(PARTITIONS, await self._body(request))
        await self._change(request, lambda state: assigned(state, _partitions(form.partitions)))
        return _done()

    async def assignments(self, request: Request) -> Response:
        media, kept = management_media(request), await self._read(request)
        found = [{"topic": topic, "partition": partition} for topic, partition in kept.state.partitions]
        return rest_answer({"partitions": found}, media)

    async def seek(self, request: Request) -> Response:
        form = parse_typed(POSITIONS, await self._body(request))
        kept = await self._read(request)
        offsets = {(one.topic, one.partition): one.offset for one in form.offsets}
        times = {
            (one.topic, one.partition): Position(Anchor.TIMESTAMP, timestamp_ms(one.timestamp))
            for one in form.timestamps
        }
        sought(kept.state, {**offsets, **dict.fromkeys(times, 0)})
        offsets.update(await resolved(self._broker, kept, times))
        await self._change(request, lambda state: sought(state, offsets))
        return _done()

    async def seek_to_beginning(self, request: Request) -> Response:
        return await self._seek_all(request, Anchor.EARLIEST)

    async def seek_to_end(self, request: Request) -> Response:
        return await self._seek_all(request, Anchor.LATEST)

    async def records(self, request: Request) -> Response:
        limits = page_limits(request, self._service)
        timeout_ms = query_number(request, "timeout", -1, OFFSET_MAX)
        bounds = ReadBounds(
            limits.max_records,
            limits.max_bytes,
            None if timeout_ms is None or timeout_ms < 0 else min(timeout_ms, TIMEOUT_MS_MAX),
        )
        media: list[str] = []

        async def read_state() -> KeptInstance:
            kept = await self._read(request)
            media[:] = [answer_format(request, kept.state.config.format).media_type]
            return kept

        async def hold(work: Coroutine[Any, Any, T]) -> T:
            return await self._service.waiting.hold(request.receive, work)

        page = await self._reads.read(read_state, bounds, hold)
        return PageAnswer(page, self._store, media[0])

    async def commit(self, request: Request) -> Response:
        form = parsed_or(OFFSETS, await self._body(request), OffsetsForm())
        kept = await self._read(request)
        if form.offsets is not None:
            await self._membership.commit(kept, [_next_offset(one) for one in form.offsets])
            return _done()
        if offsets := to_commit(kept.state):
            await self._membership.commit(kept, offsets)
            await self._change(request, lambda state: committed(state, offsets))
        return _done()

    async def offsets(self, request: Request) -> Response:
        media, kept = management_media(request), await self._read(request)
        body = await self._body(request)
        wanted = grouped(_partitions(parse_typed(PARTITIONS, body).partitions)) if bytes(body).strip() else None
        answer = await self._broker.groups.call(kept.context, kept.group, FetchOffsets(partitions=wanted))
        found = [
            {"topic": one.topic, "partition": one.partition, "offset": one.offset, "metadata": one.metadata}
            for one in answer.offsets
        ]
        return rest_answer({"offsets": found}, media)

    async def _seek_all(self, request: Request, anchor: Anchor) -> Response:
        form = parse_typed(PARTITIONS, await self._body(request))
        kept = await self._read(request)
        wanted = dict.fromkeys(_partitions(form.partitions), Position(anchor))
        sought(kept.state, dict.fromkeys(wanted, 0))
        offsets = await resolved(self._broker, kept, wanted)
        await self._change(request, lambda state: sought(state, offsets))
        return _done()

    async def _read(self, request: Request) -> KeptInstance:
        return await self._store.read(context_of(request), *_names(request))

    async def _change(self, request: Request, change: Callable[[Instance], Instance]) -> None:
        await self._store.change(context_of(request), *_names(request), lambda kept: change(kept.state))

    async def _body(self, request: Request) -> Body:
        """The body, which may be empty. Its type is checked if there is one."""
        with self._service.bodies.in_flight() as held:
            body = await self._service.bodies.read(request, held)
        if body:
            check_management_body(request)
        return body


def _done() -> Response:
    return Response(status_code=204)


def _group(request: Request) -> str:
    group: str = request.path_params["group"]
    return group


def _names(request: Request) -> tuple[str, str]:
    """The group and the instance in the path."""
    return _group(request), request.path_params["instance"]


def _partitions(forms: Iterable[PartitionForm]) -> list[Place]:
    return [(one.topic, one.partition) for one in forms]


def _next_offset(form: OffsetForm) -> PartitionOffset:
    """A commit names the last record that is done; the log's groups store the next one to read."""
    return PartitionOffset(
        topic=form.topic, partition=form.partition, offset=form.offset + 1, metadata=form.metadata or ""
    )
