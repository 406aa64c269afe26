"""The direct lane for produce and fetch answers like the routes behind it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from tidelog.services.http.v1.direct_lane import DirectLane


async def _routed(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("routed")(scope, receive, send)


def _endpoint(name: str) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def answer(request: Request) -> Response:
        if request.path_params["topic"] == "broken":
            raise ValueError("no")
        return PlainTextResponse(f"{name} {dict(request.path_params)}")

    return answer


def _tell(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"told {error}", 500)


async def _asked(method: str, path: str, **more: object) -> str:
    lane = DirectLane(_routed, _endpoint("produce"), _endpoint("fetch"), _tell)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", **more}
    await lane(scope, receive, send)
    return bytes(sent[1]["body"]).decode()


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("POST", "/v1/topics/t/records", "produce {'topic': 't'}"),
        ("POST", "/v1/topics/t/partitions/3/records", "produce {'topic': 't', 'partition': '3'}"),
        ("GET", "/v1/topics/t/partitions/3/records", "fetch {'topic': 't', 'partition': '3'}"),
        ("POST", "/v1/topics/broken/records", "told no"),
        ("GET", "/v1/topics/t/records", "routed"),
        ("PUT", "/v1/topics/t/records", "routed"),
        ("HEAD", "/v1/topics/t/partitions/3/records", "routed"),
        ("POST", "/v1/topics//records", "routed"),
        ("POST", "/v1/topics/t/partitions//records", "routed"),
        ("POST", "/v1/topics/t/records/", "routed"),
        ("GET", "/v1/topics/t/log", "routed"),
        ("GET", "/healthz", "routed"),
    ],
)
async def test_a_path_is_recognised_by_its_shape(method: str, path: str, answer: str) -> None:
    assert await _asked(method, path) == answer


async def test_behind_a_proxy_that_adds_a_path_the_router_answers() -> None:
    assert await _asked("POST", "/v1/topics/t/records", root_path="/log") == "routed"
