"""Implements `broker.peers.Peers` over the public HTTP interface, with Arrow bodies in both directions.

The broker that receives a produce admits its records and sets their timestamps before it divides them into shares. The
leader admits a share again, which changes only the timestamps of a topic with LogAppendTime: they are the leader's. A
peer's request never creates a topic (`produce_routes`), because the first broker has already applied `auto_create`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
import pyarrow as pa

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.fetch import (
    Anchor,
    Fetched,
    FetchedPart,
    FetchLimits,
    FetchPart,
    Position,
)
from tidelog.services.broker.api.produce import Appended, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.write.routing import Share
from tidelog.services.peers.arrow_bodies import decode_page, encode_share, pieces_of
from tidelog.services.peers.part_calls import FETCH_PARTS, parts_request, position_text, read_parts
from tidelog.services.peers.pool import PeerAnswer, PeerPool, PeerRequest, error_of
from tidelog.services.peers.proof import PeerProofs
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Corrupt
from tidelog.storage.runtime import Runtime
from tidelog.wire import headers
from tidelog.wire.group_calls import answer_type, waits
from tidelog.wire.groups import GroupRequest
from tidelog.wire.paths import group_target, partition_target, topic_target
from tidelog.wire.records import ProduceAnswer
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest
from tidelog.wire.topics import LogStartAnswer, OffsetAnswer

A = TypeVar("A")
T = TypeVar("T")

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
MSGPACK = "application/vnd.msgpack"
COMMIT_MARGIN_S = 5.0
"""How long a leader may take to answer beyond its own bound for a commit."""
_THREAD_BYTES_MIN = 1 << 18
_INLINE_BODY_BYTES_MAX = 1 << 16


class HttpPeers:
    """Calls other brokers as `broker.peers.Peers` describes."""

    def __init__(self, runtime: Runtime, settings: Settings, proofs: PeerProofs) -> None:
        self._clock = runtime.clock
        self._call_timeout_s = settings.forward_timeout_ms / 1000
        self._produce_timeout_s = settings.commit_timeout_ms / 1000 + COMMIT_MARGIN_S
        self._pool = PeerPool(proofs, runtime.clock)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="peers")

    async def produce(
        self, context: RequestContext, leader: Leader, topic: str, share: Share, options: ProduceOptions
    ) -> Appended:
        body = await self._encoded(share.records)
        query = {"acks": options.acks.value}
        if options.expected_offset is not None:
            query["expected_offset"] = str(options.expected_offset)
        request = PeerRequest(
            "POST",
            partition_target(topic, share.partition, "records", query),
            context,
            [("Content-Type", ARROW), *_producer_headers(options)],
            bytes(body) if body.nbytes <= _INLINE_BODY_BYTES_MAX else pieces_of(body),
            body.nbytes,
        )
        answer = await self._whole(leader, request, self._produce_timeout_s)
        appended = next(iter(_decoded(answer, ProduceAnswer).partitions), None)
        if appended is None:
            raise Corrupt("a peer's answer", "it says nothing about the records of the share")
        duplicate = appended.duplicate is True
        return Appended(appended.partition, appended.base_offset, appended.count, appended.timestamp, duplicate)

    async def fetch(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched:
        query = {
            "offset": str(offset),
            "max_records": str(limits.max_records),
            "max_bytes": str(limits.max_bytes),
            "wait_ms": str(limits.wait_ms),
            **_freshness(fresh=limits.fresh),
        }
        target = partition_target(topic, partition, "records", query)
        request = PeerRequest("GET", target, context, [("Accept", ARROW)], waits=limits.wait_ms > 0)
        timeout_s = self._call_timeout_s + limits.wait_ms / 1000
        async with self._pool.call(leader.address, request, answer_timeout_s=timeout_s) as answer:
            body = await _read(answer)
            return Fetched(
                await self._page(body),
                _number(answer.headers, headers.NEXT_OFFSET),
                _number(answer.headers, headers.LOG_START_OFFSET),
                _number(answer.headers, headers.HIGH_WATERMARK),
            )

    async def fetch_parts(
        self, context: RequestContext, leader: Leader, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        body = msgspec.json.encode(parts_request(parts, limits))
        headers = [("Accept", ARROW), ("Content-Type", JSON)]
        request = PeerRequest("POST", FETCH_PARTS, context, headers, body, len(body), waits=limits.wait_ms > 0)
        answer = await self._whole(leader, request, self._call_timeout_s + limits.wait_ms / 1000)
        if len(answer) < _THREAD_BYTES_MIN:
            return read_parts(parts, answer)
        return await asyncio.get_running_loop().run_in_executor(self._threads, read_parts, parts, answer)

    async def resolve(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, position: Position, *, fresh: bool
    ) -> int:
        if position.anchor is Anchor.OFFSET:
            return position.value
        query = {"at": position_text(position), **_freshness(fresh=fresh)}
        request = PeerRequest("GET", partition_target(topic, partition, "offset", query), context)
        return _decoded(await self._whole(leader, request, self._call_timeout_s), OffsetAnswer).offset

    async def topic_log(
        self, context: RequestContext, leader: Leader, topic: str, request: TopicLogRequest
    ) -> TopicLogDescription:
        call = PeerRequest("GET", topic_target(topic, "log", request.query()), context)
        return _decoded(await self._whole(leader, call, self._call_timeout_s), TopicLogDescription)

    async def delete_records(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, before_offset: int
    ) -> int:
        body = msgspec.json.encode({"before_offset": before_offset})
        target = partition_target(topic, partition, "delete-records", {})
        request = PeerRequest("POST", target, context, [("Content-Type", JSON)], body, len(body))
        # The leader may have to archive first.
        return _decoded(await self._whole(leader, request, self._produce_timeout_s), LogStartAnswer).log_start_offset

    async def group_call(
        self, context: RequestContext, leader: Leader, group: str, request: GroupRequest[A], *, wait_s: float
    ) -> A:
        body = msgspec.msgpack.encode(request)
        content_type = [("Content-Type", MSGPACK)]
        call = PeerRequest("POST", group_target(group), context, content_type, body, len(body), waits=waits(request))
        answer = await self._whole(leader, call, self._call_timeout_s + wait_s)
        return _unpacked(answer, answer_type(request))

    async def aclose(self) -> None:
        await self._pool.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _whole(self, leader: Leader, request: PeerRequest, timeout_s: float) -> bytes:
        async with self._pool.call(leader.address, request, answer_timeout_s=timeout_s) as answer:
            return await _read(answer)

    async def _encoded(self, records: pa.Table) -> memoryview:
        if records.nbytes < _THREAD_BYTES_MIN:
            return encode_share(records)
        return await asyncio.get_running_loop().run_in_executor(self._threads, encode_share, records)

    async def _page(self, body: bytes) -> tuple[pa.RecordBatch, ...]:
        if len(body) < _THREAD_BYTES_MIN:
            return tuple(decode_page(body))
        return tuple(await asyncio.get_running_loop().run_in_executor(self._threads, decode_page, body))


async def _read(answer: PeerAnswer) -> bytes:
    """The body of a successful answer. Raises the error of any other answer."""
    body = await answer.read()
    if answer.status >= 400:
        raise error_of(answer.status, answer.headers, body)
    return body


def _freshness(*, fresh: bool) -> dict[str, str]:
    return {} if fresh else {"fresh": "false"}


def _producer_headers(options: ProduceOptions) -> list[tuple[str, str]]:
    producer = options.producer
    if producer is None:
        return []
    return [
        (headers.PRODUCER_ID, producer.producer_id),
        (headers.PRODUCER_EPOCH, str(producer.producer_epoch)),
        (headers.SEQUENCE, str(producer.first_sequence)),
    ]


def _number(answered: Mapping[str, str], name: str) -> int:
    try:
        return int(answered[name])
    except (KeyError, ValueError) as error:
        raise Corrupt("a peer's answer", f"its header {name} is missing or is not a number") from error


def _unpacked(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        raise Corrupt("a peer's answer", f"it does not match {shape.__name__} ({error})") from error


def _decoded(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        raise Corrupt("a peer's answer", f"it does not match {shape.__name__} ({error})") from error
