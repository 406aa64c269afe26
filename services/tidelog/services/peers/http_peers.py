"""`broker.peers.Peers` over the public HTTP interface, with Arrow bodies both ways.

A share was admitted where it came in, and its records carry their timestamps; the leader admits it once more, which
changes nothing but the timestamps of a topic with LogAppendTime: those are the leader's, as the log's are. A peer's
request never creates a topic (`produce_routes`), as its sender's `auto_create` was heeded before the split.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
import pyarrow as pa

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.fetch import Anchor, Fetched, FetchLimits, PartitionLog, Position
from tidelog.services.broker.api.produce import Appended, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.write.routing import Share
from tidelog.services.http.v1.partition_log_json import PartitionLogJson, partition_log_of
from tidelog.services.peers.answers import LogStartAnswer, OffsetAnswer, ProduceAnswer
from tidelog.services.peers.arrow_bodies import decode_page, encode_share, pieces_of
from tidelog.services.peers.pool import PeerAnswer, PeerPool, PeerRequest
from tidelog.services.peers.proof import PeerProofs
from tidelog.services.peers.refusals import error_of
from tidelog.services.runtime.settings import Settings
from tidelog.storage.errors import Corrupt
from tidelog.storage.runtime import Runtime

T = TypeVar("T")

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
COMMIT_MARGIN_S = 5.0
"""How much longer than its own bound for a commit a leader may take to answer."""
_THREAD_BYTES_MIN = 1 << 18
_INLINE_BODY_BYTES_MAX = 1 << 16


class HttpPeers:
    """See `broker.peers.Peers`."""

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
            _target(topic, share.partition, "records", query),
            context,
            [("Content-Type", ARROW), *_producer_headers(options)],
            bytes(body) if body.nbytes <= _INLINE_BODY_BYTES_MAX else pieces_of(body),
            body.nbytes,
        )
        answer = await self._whole(leader, request, self._produce_timeout_s)
        appended = _decoded(answer, ProduceAnswer).partitions[0]
        return Appended(
            appended.partition, appended.base_offset, appended.count, appended.timestamp, appended.duplicate
        )

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
        target = _target(topic, partition, "records", query)
        request = PeerRequest("GET", target, context, [("Accept", ARROW)], waits=limits.wait_ms > 0)
        timeout_s = self._call_timeout_s + limits.wait_ms / 1000
        async with self._pool.ask(leader.address, request, answer_timeout_s=timeout_s) as answer:
            body = await _read(answer)
            return Fetched(
                await self._page(body),
                _number(answer.headers, "Tidelog-Next-Offset"),
                _number(answer.headers, "Tidelog-Log-Start-Offset"),
                _number(answer.headers, "Tidelog-High-Watermark"),
            )

    async def resolve(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, position: Position, *, fresh: bool
    ) -> int:
        if position.anchor is Anchor.OFFSET:
            return position.value
        query = {"at": _written(position), **_freshness(fresh=fresh)}
        request = PeerRequest("GET", _target(topic, partition, "offset", query), context)
        return _decoded(await self._whole(leader, request, self._call_timeout_s), OffsetAnswer).offset

    async def partition_log(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, *, fresh: bool
    ) -> PartitionLog:
        request = PeerRequest("GET", _target(topic, partition, "log", _freshness(fresh=fresh)), context)
        return partition_log_of(_decoded(await self._whole(leader, request, self._call_timeout_s), PartitionLogJson))

    async def delete_records(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, before_offset: int
    ) -> int:
        body = msgspec.json.encode({"before_offset": before_offset})
        target = _target(topic, partition, "delete-records", {})
        request = PeerRequest("POST", target, context, [("Content-Type", JSON)], body, len(body))
        # The leader may have to archive first.
        return _decoded(await self._whole(leader, request, self._produce_timeout_s), LogStartAnswer).log_start_offset

    async def aclose(self) -> None:
        await self._pool.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _whole(self, leader: Leader, request: PeerRequest, timeout_s: float) -> bytes:
        async with self._pool.ask(leader.address, request, answer_timeout_s=timeout_s) as answer:
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
    """The body of a success; else what the peer refused it with."""
    body = await answer.read()
    if answer.status >= 400:
        raise error_of(answer.status, answer.headers, body)
    return body


def _target(topic: str, partition: int, what: str, query: Mapping[str, str]) -> str:
    path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/{what}"
    return f"{path}?{urlencode(query)}" if query else path


def _freshness(*, fresh: bool) -> dict[str, str]:
    return {} if fresh else {"fresh": "false"}


def _producer_headers(options: ProduceOptions) -> list[tuple[str, str]]:
    producer = options.producer
    if producer is None:
        return []
    return [
        ("Tidelog-Producer-Id", producer.producer_id),
        ("Tidelog-Producer-Epoch", str(producer.producer_epoch)),
        ("Tidelog-Sequence", str(producer.first_sequence)),
    ]


def _written(position: Position) -> str:
    """`position` as `http.positions` reads it."""
    match position.anchor:
        case Anchor.FROM_END:
            return f"-{position.value}"
        case Anchor.TIMESTAMP:
            return f"@{position.value}"
        case Anchor.EARLIEST | Anchor.LATEST:
            return position.anchor.name.lower()
    return str(position.value)


def _number(headers: Mapping[str, str], name: str) -> int:
    try:
        return int(headers[name])
    except (KeyError, ValueError) as error:
        raise Corrupt("a peer's answer", f"its header {name} is missing or no number") from error


def _decoded(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        raise Corrupt("a peer's answer", f"is not what docs/http-api.md says ({error})") from error
