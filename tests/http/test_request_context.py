"""The context that the front makes of a request's head, and that a forwarded call carries to a peer."""

from __future__ import annotations

import httpx
import pytest

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.front.request_context import TIMEOUT_MS_MAX, RequestContexts
from tidelog.services.http.front.request_head import RequestHead
from tidelog.services.peers.pool import context_headers
from tidelog.storage.runtime import Runtime, SystemClock


class StoppedClock(SystemClock):
    """It is always second 100."""

    def monotonic(self) -> float:
        return 100.0


CONTEXTS = RequestContexts(Runtime(clock=StoppedClock()))


def head(headers: dict[str, str]) -> RequestHead:
    raw = {name.lower().encode(): value.encode() for name, value in headers.items()}
    return RequestHead("GET", "/", b"/", b"", raw)


def test_a_client_is_anonymous_whatever_it_says() -> None:
    context = CONTEXTS.of(head({"Tidelog-Principal": "admin", "Tidelog-Client-Id": "app-1"}), from_peer=False)
    assert (context.principal, context.client_id) == ("anonymous", "app-1")
    assert not context.from_peer
    assert context.may_forward
    assert context.deadline_s is None


def test_a_context_arrives_at_the_peer_as_it_was_but_for_the_hop() -> None:
    sent = RequestContext("r-1", principal="alice", client_id="app-1", deadline_s=102.5)
    arrived = CONTEXTS.of(head(dict(context_headers(sent, now_s=100.0))), from_peer=True)
    assert arrived == RequestContext("r-1", "alice", "app-1", deadline_s=102.5, from_peer=True, may_forward=False)


def test_a_deadline_that_has_passed_leaves_no_time() -> None:
    context = RequestContext("r-1", deadline_s=99.0)
    assert context.bounded_s(5.0, now_s=100.0) == 0
    assert dict(context_headers(context, now_s=100.0))["Tidelog-Timeout-Ms"] == "0"
    assert context.without_deadline().bounded_s(5.0, now_s=100.0) == 5.0


async def test_a_client_that_waits_half_a_second_is_answered_then(
    client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    began = SystemClock().monotonic()
    answer = await client.get(
        f"/v1/topics/web/partitions/0/records?offset={web[0]}&wait_ms=30000", headers={"Tidelog-Timeout-Ms": "200"}
    )
    assert answer.status_code == 200
    assert answer.json()["records"] == []
    assert SystemClock().monotonic() - began < 20


@pytest.mark.parametrize("timeout", ["soon", "-1", "1.5", "", str(TIMEOUT_MS_MAX + 1)])
async def test_a_timeout_that_is_not_a_number_of_milliseconds_is_refused(
    client: httpx.AsyncClient, timeout: str
) -> None:
    answer = await client.get("/v1/topics", headers={"Tidelog-Timeout-Ms": timeout})
    assert answer.status_code == 422
    assert answer.json()["field"] == "Tidelog-Timeout-Ms"
