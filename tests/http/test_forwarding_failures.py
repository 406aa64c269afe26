"""The answer to the client if the broker that its request was forwarded to becomes silent, dies or refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from tests.http.requests import ARROW, EVENTS, NDJSON, arrow_stream, problem, values_table
from tests.http.sockets import connected, happens, head
from tests.peers.listening_broker import SETTINGS, ListeningBroker, listening_broker
from tests.peers.scripted_peer import Turn, answer, refusal, scripted_peer

PATH = "/v1/topics/web/partitions/0"
PRODUCED = b'{"topic":"web","partitions":[{"partition":0,"base_offset":0,"count":1,"timestamp":1}]}'
PRODUCER = {"Tidelog-Producer-Id": "p", "Tidelog-Producer-Epoch": "0", "Tidelog-Sequence": "0"}
LARGE = arrow_stream(values_table([bytes(1_000)] * 1_000))


@pytest.fixture
async def asked() -> AsyncIterator[ListeningBroker]:
    settings = replace(SETTINGS, forward_timeout_ms=1_500, request_read_timeout_ms=600)
    async with listening_broker(settings) as found:
        await found.http.post("/v1/topics", json={"name": "web", "partitions": 2})
        yield found


async def produce(to: ListeningBroker, headers: dict[str, str] | None = None) -> httpx.Response:
    return await to.http.post(f"{PATH}/records", json={"records": [{"value": "x"}]}, headers=headers)


async def test_a_produce_whose_leader_died_after_it_was_sent_has_an_unknown_outcome(asked: ListeningBroker) -> None:
    async with scripted_peer(Turn(), Turn(answer(200, PRODUCED))) as peer:
        asked.broker.led_by(peer.url)
        problem(await produce(asked), 503, "unavailable")
        assert len(peer.heads) == 1


async def test_a_produce_with_a_sequence_is_sent_again(asked: ListeningBroker) -> None:
    async with scripted_peer(Turn(), Turn(answer(200, PRODUCED, "Connection: close"))) as peer:
        asked.broker.led_by(peer.url)
        assert (await produce(asked, PRODUCER)).content == PRODUCED
        assert len(peer.heads) == 2
        assert peer.bodies[0] == peer.bodies[1]


async def test_an_expected_offset_alone_does_not_make_a_retry_harmless(asked: ListeningBroker) -> None:
    async with scripted_peer(Turn(), Turn(answer(200, PRODUCED))) as peer:
        asked.broker.led_by(peer.url)
        body = {"records": [{"value": "x"}]}
        problem(await asked.http.post(f"{PATH}/records?expected_offset=0", json=body), 503, "unavailable")
        assert len(peer.heads) == 1


@pytest.mark.parametrize("code", ["not_leader", "leader_unknown"])
async def test_a_peer_that_does_not_lead_is_asked_again(asked: ListeningBroker, code: str) -> None:
    async with scripted_peer(Turn(refusal(code)), Turn(answer(200, PRODUCED))) as peer:
        asked.broker.led_by(peer.url)
        assert (await produce(asked)).content == PRODUCED
        assert len(peer.heads) == 2


@pytest.mark.parametrize("code", ["unavailable", "fenced", "overloaded", "denied"])
async def test_another_refusal_is_passed_on_as_it_is(asked: ListeningBroker, code: str) -> None:
    async with scripted_peer(Turn(refusal(code))) as peer:
        asked.broker.led_by(peer.url)
        assert (await produce(asked)).json()["code"] == code
        assert len(peer.heads) == 1


async def test_a_peer_that_is_not_there_took_nothing(asked: ListeningBroker) -> None:
    asked.broker.led_by("http://127.0.0.1:1")
    refused = problem(await produce(asked), 503, "leader_unknown")
    assert "the request was not sent" in refused["detail"]


async def test_a_body_that_was_not_whole_when_its_peer_died_is_sent_again(asked: ListeningBroker) -> None:
    """The peer dies after the first bytes; the client sends the rest only then."""
    async with scripted_peer(Turn(reads_bytes=4_096), Turn(answer(200, PRODUCED))) as peer:
        asked.broker.led_by(peer.url)
        async with connected(asked) as wire:
            await wire.send(head("POST", f"{PATH}/records", Content_Type=ARROW, Content_Length=str(len(LARGE))))
            await wire.send(LARGE[:100_000])
            await happens(lambda: peer.left == 1)
            await wire.send(LARGE[100_000:])
            assert (await wire.answer()).body == PRODUCED
        assert peer.bodies[1] == LARGE
    assert asked.service.bodies.in_flight_bytes == 0


async def test_a_client_that_leaves_amid_its_body_leaves_nothing_behind(asked: ListeningBroker) -> None:
    async with scripted_peer(Turn(answer(200, PRODUCED))) as peer:
        asked.broker.led_by(peer.url)
        async with connected(asked) as wire:
            await wire.send(head("POST", f"{PATH}/records", Content_Type=ARROW, Content_Length=str(len(LARGE))))
            await wire.send(LARGE[:100_000])
            await happens(lambda: len(peer.heads) == 1)
        await happens(lambda: peer.left == 1)
        assert peer.bodies == []
        await happens(lambda: asked.service.bodies.in_flight_bytes == 0)


async def test_a_body_that_comes_too_slowly_is_refused_with_the_reason(asked: ListeningBroker) -> None:
    async with scripted_peer(Turn(answer(200, PRODUCED))) as peer:
        asked.broker.led_by(peer.url)
        async with connected(asked) as wire:
            await wire.send(head("POST", f"{PATH}/records", Content_Type=ARROW, Content_Length=str(len(LARGE))))
            await wire.send(LARGE[:1_000])
            assert (await wire.answer()).problem["code"] == "request_timeout"


async def test_a_fetch_is_asked_again_when_its_peer_died_before_it_answered(asked: ListeningBroker) -> None:
    cut_off = answer(200, b"{}", told_bytes=100)
    async with scripted_peer(Turn(), Turn(cut_off), Turn(answer(200, b"{}"))) as peer:
        asked.broker.led_by(peer.url)
        assert (await asked.http.get(f"{PATH}/records")).content == b"{}"
        assert len(peer.heads) >= 3


async def test_an_answer_cut_off_amid_its_body_is_not_taken_for_a_whole_one(asked: ListeningBroker) -> None:
    cut_off = answer(200, bytes(200_000), told_bytes=400_000)
    async with scripted_peer(Turn(cut_off)) as peer:
        asked.broker.led_by(peer.url)
        with pytest.raises(httpx.RemoteProtocolError):
            await asked.http.get(f"{PATH}/records?offset=0")


async def test_lines_cut_off_at_a_peer_are_cut_off_here(asked: ListeningBroker) -> None:
    begun = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
    async with scripted_peer(Turn(begun)) as peer:
        asked.broker.led_by(peer.url)
        async with connected(asked) as wire:
            await wire.send(head("GET", f"{PATH}/records?offset=0", accept=NDJSON))
            answered = await wire.closed()
    assert answered.endswith(b"3\r\n{}\n\r\n")


async def test_an_event_stream_whose_leader_dies_ends_whole(asked: ListeningBroker) -> None:
    """A client of event streams then resumes from the last id by itself."""
    begun = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n: a\n\n\r\n"
    async with scripted_peer(Turn(begun, stays=True)) as peer:
        asked.broker.led_by(peer.url)
        async with asked.http.stream("GET", f"{PATH}/records", headers={"accept": EVENTS}) as stream:
            pieces = stream.aiter_bytes()
            assert await anext(pieces) == b": a\n\n"
            peer.hang_up()
            assert [piece async for piece in pieces] == []


async def test_a_leader_that_was_replaced_is_not_waited_for(asked: ListeningBroker) -> None:
    """The leader was paused: its connections are open, but it answers nothing."""
    async with scripted_peer(Turn(stays=True)) as paused, scripted_peer(Turn(answer(200, PRODUCED))) as other:
        asked.broker.led_by(paused.url)
        plain, sequenced = (asyncio.ensure_future(produce(asked, headers)) for headers in (None, PRODUCER))
        await happens(lambda: len(paused.bodies) == 2)
        asked.broker.led_by(other.url)
        problem(await plain, 503, "unavailable")
        assert (await sequenced).content == PRODUCED


async def test_a_long_poll_follows_its_shard_to_another_leader(asked: ListeningBroker) -> None:
    async with scripted_peer(Turn(stays=True)) as paused, scripted_peer(Turn(answer(200, b"{}"))) as other:
        asked.broker.led_by(paused.url)
        polled = asyncio.ensure_future(asked.http.get(f"{PATH}/records?offset=0&wait_ms=9000"))
        await happens(lambda: len(paused.heads) == 1)
        asked.broker.led_by(other.url)
        assert (await polled).content == b"{}"
        waits = [int(peer.heads[0].split(b"wait_ms=")[1].split()[0]) for peer in (paused, other)]
        assert waits[1] < waits[0] <= 9_000


async def test_headers_of_one_hop_stay_there(asked: ListeningBroker) -> None:
    told = answer(200, b"{}", "Keep-Alive: timeout=5", "X-Private: 1", "Connection: x-private", "X-Other: 2")
    async with scripted_peer(Turn(told)) as peer:
        asked.broker.led_by(peer.url)
        headers = {"connection": "keep-alive, x-mine", "x-mine": "1", "te": "trailers", "x-end-to-end": "2"}
        answered = await asked.http.get(f"{PATH}/records", headers=headers)
        assert answered.headers["x-other"] == "2"
        assert answered.headers["tidelog-leader"] == peer.url
        assert not {"keep-alive", "x-private"} & set(answered.headers)
        sent = peer.heads[0].lower()
        assert b"tidelog-peer: " in sent
        assert b"the secret of the tests" not in sent
        assert b"x-end-to-end: 2" in sent
        assert b"x-mine" not in sent
        assert b"\r\nte:" not in sent


async def test_an_answer_that_has_begun_is_passed_on_whole_though_the_broker_stops(asked: ListeningBroker) -> None:
    half = answer(200, bytes(200_000), told_bytes=200_001)
    async with scripted_peer(Turn(half, stays=True, ends_with=b"!")) as peer:
        asked.broker.led_by(peer.url)
        async with asked.http.stream("GET", f"{PATH}/records?offset=0") as stream:
            pieces = stream.aiter_bytes()
            first = await anext(pieces)
            asked.service.waiting.drain()
            peer.hang_up()
            rest = b"".join([piece async for piece in pieces])
    assert first + rest == bytes(200_000) + b"!"


async def test_a_poll_whose_leader_is_silent_ends_soon_after_the_broker_stops(asked: ListeningBroker) -> None:
    async with scripted_peer(Turn(stays=True)) as peer:
        asked.broker.led_by(peer.url)
        polled = asyncio.ensure_future(asked.http.get(f"{PATH}/records?offset=0&wait_ms=15000"))
        await happens(lambda: len(peer.heads) == 1)
        asked.service.waiting.drain()
        assert "is stopping" in problem(await polled, 503, "overloaded")["detail"]
        assert len(peer.heads) == 2
