"""Requests and answers that the HTTP tests share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.answers.problems import ProblemAnswers
from tidelog.services.http.front.request_context import store_context
from tidelog.storage.records import DRAFT_SCHEMA

JSON = "application/json"
NDJSON = "application/x-ndjson"
TEXT = "text/plain"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"


def arrow_stream(table: pa.Table, compression: str | None = None) -> bytes:
    """`table` as an IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def values_table(values: Sequence[bytes | None]) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary())})


def full_table() -> pa.Table:
    """Two records with every column of a draft and `partition`."""
    rows = pa.table(
        {
            "timestamp": pa.array([1_000, None], pa.timestamp("ms", tz="UTC")),
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([b"v", None], pa.binary()),
            "headers": pa.array([[("h", b"x"), ("i", None)], None], DRAFT_SCHEMA.field("headers").type),
        }
    )
    return rows.append_column("partition", pa.array([1, None], pa.int32()))


def read_arrow(body: bytes) -> pa.Table:
    return pa.ipc.open_stream(body).read_all()


async def offsets_of(client: httpx.AsyncClient, topic: str) -> dict[int, int]:
    """The high watermark of each partition of `topic`."""
    described = (await client.get(f"/v1/topics/{topic}")).json()
    return {partition["partition"]: partition["high_watermark"] for partition in described["partitions"]}


def answer_to(error: Exception, counts: Counter[tuple[int, str]] | None = None, *, from_peer: bool = False) -> Response:
    """The answer to a request ``POST /`` with the id ``id-1`` that failed with `error`."""
    request = Request({"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []})
    store_context(request.scope, RequestContext("id-1", from_peer=from_peer))
    return ProblemAnswers(Counter() if counts is None else counts).answer(request, error)


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The members of `answer`, which must be a problem with that status and code."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    members: dict[str, Any] = answer.json()
    assert members["status"] == status
    assert members["code"] == code
    assert members["detail"]
    return members
