"""The answer to a request that a stopping broker cancels."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.http.requests import answer_to

from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.http.front.host_check import HostCheck
from tidelog.services.http.front.http_front import FrontChecks, HttpFront
from tidelog.services.http.front.origin_check import OriginCheck
from tidelog.services.http.front.request_context import RequestContexts
from tidelog.services.http.front.request_measurements import RequestMeasurements
from tidelog.services.peers.proof import PeerProofs
from tidelog.storage.runtime import Runtime, SystemClock

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
CHECKS = FrontChecks(
    HostCheck((), ()), OriginCheck((), ()), PeerProofs(PeerSecrets(None, SystemClock()), SystemClock())
)


class Endless:
    """An application that never answers, or only begins to answer."""

    def __init__(self, *, begins: bool = False) -> None:
        self._begins = begins
        self.reached = asyncio.Event()

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        if self._begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        self.reached.set()
        await asyncio.Event().wait()


async def cancelled(inner: Endless, *, stopping: bool) -> list[Message]:
    """The bytes sent for a request that is cancelled after `inner` has received it."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    contexts, measured = RequestContexts(Runtime()), RequestMeasurements(SystemClock())
    front = HttpFront(inner, CHECKS, contexts, measured, lambda _, error: answer_to(error), lambda: stopping)
    task = asyncio.ensure_future(front(dict(SCOPE), receive, send))
    await inner.reached.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled() != (stopping and len(sent) == 2)
    return sent


async def test_its_outcome_is_unknown_and_said_in_the_form_of_every_refusal() -> None:
    start, body = await cancelled(Endless(), stopping=True)
    assert start["status"] == 503
    assert (b"content-type", b"application/problem+json") in start["headers"]
    told = json.loads(body["body"])
    assert told["code"] == "unavailable"
    assert "outcome is unknown" in told["detail"]


async def test_an_answer_that_has_begun_is_not_answered_again() -> None:
    assert [message["type"] for message in await cancelled(Endless(begins=True), stopping=True)] == [
        "http.response.start"
    ]


@pytest.mark.parametrize("begins", [False, True])
async def test_while_nothing_stops_a_cancellation_is_one(begins: bool) -> None:
    assert len(await cancelled(Endless(begins=begins), stopping=False)) == begins
