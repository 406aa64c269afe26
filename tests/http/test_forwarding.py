"""Two brokers on sockets: the one that gets a request forwards it if the other one leads the shard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.http.requests import ARROW, EVENTS, JSON, arrow_stream, problem, read_arrow, values_table
from tests.http.sockets import WAIT_S, connected, happens, head
from tests.peers.listening_broker import SETTINGS, ListeningBroker, listening_broker, proofs

from tidelog.services.http.app import create_app
from tidelog.services.peers.proof import PEER_HEADER
from tidelog.storage.runtime import Runtime

PATH = "/v1/topics/web/partitions/0"


@pytest.fixture
async def leader() -> AsyncIterator[ListeningBroker]:
    async with listening_broker() as found:
        await found.http.post("/v1/topics", json={"name": "web", "partitions": 2})
        yield found


@pytest.fixture
async def asked(leader: ListeningBroker) -> AsyncIterator[ListeningBroker]:
    """A broker that knows the topic, and that `leader` leads it."""
    async with listening_broker() as found:
        await found.http.post("/v1/topics", json={"name": "web", "partitions": 2})
        found.broker.led_by(leader.url)
        yield found


async def produce(to: ListeningBroker, value: str, **headers: str) -> httpx.Response:
    return await to.http.post(f"{PATH}/records", json={"records": [{"value": value}]}, headers=headers)


async def values(of: ListeningBroker) -> list[Any]:
    answer = await of.http.get(f"{PATH}/records")
    return [record["value"] for record in answer.json()["records"]]


async def test_a_produce_and_a_fetch_go_to_the_leader(asked: ListeningBroker, leader: ListeningBroker) -> None:
    produced = await produce(asked, "one")
    assert produced.json()["partitions"] == [
        {"partition": 0, "base_offset": 0, "count": 1, "timestamp": produced.json()["partitions"][0]["timestamp"]}
    ]
    fetched = await asked.http.get(f"{PATH}/records?offset=0")
    assert [record["value"] for record in fetched.json()["records"]] == ["one"]
    assert fetched.headers["tidelog-next-offset"] == "1"
    assert asked.broker.status().shards[0].wal_next == 1, "nothing but the start entry"
    for answer in (produced, fetched):
        assert answer.headers["tidelog-leader"] == leader.url
    metrics = (await asked.http.get("/metrics")).text
    assert 'tidelog_http_forwarded_total{method="POST"} 1.0' in metrics
    assert 'tidelog_http_forwarded_total{method="GET"} 1.0' in metrics


async def test_an_answer_given_here_names_this_broker(leader: ListeningBroker) -> None:
    assert (await produce(leader, "one")).headers["tidelog-leader"] == leader.url
    assert (await leader.http.get(f"{PATH}/offset?at=latest")).headers["tidelog-leader"] == leader.url


async def test_the_produce_that_creates_a_topic_learns_its_leader(leader: ListeningBroker) -> None:
    made = await leader.http.post("/v1/topics/new/partitions/0/records", json={"records": [{"value": "x"}]})
    assert made.headers["tidelog-leader"] == leader.url


async def test_an_offset_is_the_leaders(asked: ListeningBroker, leader: ListeningBroker) -> None:
    await produce(leader, "one")
    assert (await asked.http.get(f"{PATH}/offset?at=latest")).json() == {"offset": 1}


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_arrow_body_arrives_byte_for_byte(
    asked: ListeningBroker, leader: ListeningBroker, chunked: bool
) -> None:
    sent = [bytes([n % 251]) * 1_000 for n in range(1_048)]
    body = arrow_stream(values_table(sent))
    assert len(body) > 1 << 20

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 10_000):
            yield body[start : start + 10_000]

    content = pieces() if chunked else body
    answer = await asked.http.post(f"{PATH}/records", content=content, headers={"content-type": ARROW})
    assert answer.json()["partitions"][0]["count"] == len(sent)
    there = await leader.http.get(f"{PATH}/records?offset=0", headers={"accept": ARROW})
    passed_on = await asked.http.get(f"{PATH}/records?offset=0", headers={"accept": ARROW})
    assert passed_on.content == there.content
    assert read_arrow(passed_on.content).column("value").to_pylist() == sent
    assert asked.service.bodies.in_flight_bytes == 0


async def test_the_query_the_encoding_and_the_media_type_arrive_as_they_were(asked: ListeningBroker) -> None:
    lines = b'{"user":{"id":"\xc3\xbc 1"}}\n'
    body = pa.compress(lines, codec="gzip", asbytes=True)
    headers = {"content-type": "application/x-ndjson", "content-encoding": "gzip"}
    answer = await asked.http.post(f"{PATH}/records?key_field=user.id&acks=1", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    fetched = (await asked.http.get(f"{PATH}/records?offset=0&wait_ms=2000")).json()["records"]
    assert [record["key"] for record in fetched] == ["ü 1"]


async def test_a_refusal_of_the_leader_is_passed_on(asked: ListeningBroker, leader: ListeningBroker) -> None:
    conflict = await asked.http.post(f"{PATH}/records?expected_offset=7", json={"records": [{"value": "x"}]})
    assert problem(conflict, 409, "offset_conflict")["next_offset"] == 0
    beyond = await asked.http.get(f"{PATH}/records?offset=9")
    assert problem(beyond, 416, "out_of_range")["high_watermark"] == 0


async def test_an_unreadable_request_is_refused_before_it_is_forwarded(asked: ListeningBroker) -> None:
    asked.broker.led_by("http://127.0.0.1:1")
    problem(await asked.http.get(f"{PATH}/records?max=1"), 400, "invalid")
    problem(await asked.http.post(f"{PATH}/records", content=b"{}"), 415, "unsupported_media_type")
    async with connected(asked) as wire:
        await wire.send(head("POST", f"{PATH}/records", Content_Type=JSON, Content_Length=str(1 << 30)))
        assert (await wire.answer()).problem["code"] == "too_large"


async def test_a_topic_that_nobody_knows_is_not_found_and_one_produced_to_is_made(asked: ListeningBroker) -> None:
    problem(await asked.http.get("/v1/topics/none/partitions/0/records"), 404, "not_found")
    problem(await asked.http.get("/v1/topics/web/partitions/2/records"), 404, "not_found")


def as_peer(method: str, path: str) -> dict[str, str]:
    return {PEER_HEADER: proofs().sign(method, path, "anonymous")}


async def test_a_peers_request_is_not_sent_on(asked: ListeningBroker, leader: ListeningBroker) -> None:
    refused = await produce(asked, "x", **as_peer("POST", f"{PATH}/records"))
    assert problem(refused, 503, "not_leader")["leader"] == leader.url
    assert refused.headers["retry-after"] == "1"
    headers = as_peer("GET", f"{PATH}/records?offset=0")
    problem(await asked.http.get(f"{PATH}/records?offset=0", headers=headers), 503, "not_leader")
    asked.broker.led_by(None)
    problem(await produce(asked, "x", **as_peer("POST", f"{PATH}/records")), 503, "leader_unknown")
    assert await values(leader) == []


async def test_a_peers_produce_makes_no_topic(leader: ListeningBroker) -> None:
    path = "/v1/topics/new/partitions/0/records"
    answer = await leader.http.post(path, json={"records": [{"value": "x"}]}, headers=as_peer("POST", path))
    problem(answer, 404, "not_found")


async def test_a_header_that_any_client_can_send_makes_it_no_peer(
    asked: ListeningBroker, leader: ListeningBroker
) -> None:
    assert (await produce(asked, "one", **{"Tidelog-Hop": "1"})).status_code == 200
    assert await values(leader) == ["one"], "it was sent on, as a client's"
    path = "/v1/topics/new/partitions/0/records"
    made = await leader.http.post(path, json={"records": [{"value": "x"}]}, headers={"Tidelog-Hop": "1"})
    assert made.status_code == 200, "and may make a topic"


@pytest.mark.parametrize(
    "proof",
    [
        "1",
        "1 00",
        proofs("a secret of another cluster").sign("POST", f"{PATH}/records", "anonymous"),
        proofs().sign("GET", f"{PATH}/records", "anonymous"),
        proofs().sign("POST", "/v1/topics/web/partitions/1/records", "anonymous"),
    ],
    ids=["no digest", "short", "another secret", "another method", "another partition"],
)
async def test_a_proof_that_does_not_hold_is_refused_and_counted(asked: ListeningBroker, proof: str) -> None:
    refused = await produce(asked, "x", **{PEER_HEADER: proof})
    problem(refused, 401, "peer_unproved")
    assert refused.headers["www-authenticate"] == PEER_HEADER
    metrics = (await asked.http.get("/metrics")).text
    assert 'tidelog_http_problems_total{code="peer_unproved",status="401"} 1.0' in metrics


async def test_a_leader_that_has_another_secret_takes_nothing_and_the_client_may_send_again() -> None:
    stranger_settings = replace(SETTINGS, peer_secret="a secret of another cluster", forward_timeout_ms=100)
    async with listening_broker() as leader, listening_broker(stranger_settings) as asked:
        for broker in (leader, asked):
            await broker.http.post("/v1/topics", json={"name": "web", "partitions": 2})
        asked.broker.led_by(leader.url)
        assert "secret" in problem(await produce(asked, "x"), 503, "leader_unknown")["detail"]
        assert await values(leader) == []


async def test_the_request_id_goes_with_a_request_that_is_sent_on(
    asked: ListeningBroker, leader: ListeningBroker
) -> None:
    asked.broker.led_by(leader.url)
    headers = {"X-Request-Id": "mine-7"}
    answer = await asked.http.get(f"{PATH}/records?offset=9", headers=headers)
    assert problem(answer, 416, "out_of_range")["request_id"] == "mine-7"
    assert answer.headers.get_list("x-request-id") == ["mine-7"]
    made = await asked.http.get(f"{PATH}/records?offset=9")
    assert made.json()["request_id"] == made.headers["x-request-id"], "the leader was given the id made here"
    assert len(made.headers.get_list("date")) == 1


async def test_two_brokers_that_point_at_each_other_refuse(asked: ListeningBroker, leader: ListeningBroker) -> None:
    leader.broker.led_by(asked.url)
    async with asyncio.timeout(WAIT_S):
        refused = await produce(asked, "x")
    assert problem(refused, 503, "not_leader")["leader"] == asked.url


async def test_a_request_waits_for_a_shard_that_moves(asked: ListeningBroker, leader: ListeningBroker) -> None:
    asked.broker.led_by(None)
    produced = asyncio.ensure_future(produce(asked, "one"))
    fetched = asyncio.ensure_future(asked.http.get(f"{PATH}/records?offset=0"))
    await happens(lambda: asked.broker.searching == 2)
    asked.broker.led_by(leader.url)
    assert (await produced).status_code == 200
    assert (await fetched).status_code == 200
    assert await values(leader) == ["one"]


async def test_a_shard_that_nobody_comes_to_lead_is_reported_in_time(asked: ListeningBroker) -> None:
    asked.broker.led_by(None)
    refused = await produce(asked, "one")
    problem(refused, 503, "leader_unknown")
    assert refused.headers["retry-after"] == "1"


async def test_a_large_body_is_kept_for_the_broker_that_leads_at_last(
    asked: ListeningBroker, leader: ListeningBroker
) -> None:
    """The first broker refuses after it has read the body; then this broker itself leads."""
    sent = [bytes([n % 251]) * 1_000 for n in range(400)]
    body = arrow_stream(values_table(sent))
    leader.broker.led_by(asked.url)
    answering = asyncio.ensure_future(asked.http.post(f"{PATH}/records", content=body, headers={"content-type": ARROW}))
    await happens(lambda: leader.service.problems[503, "not_leader"] > 0)
    asked.broker.led_here()
    answer = await answering
    assert answer.json()["partitions"][0]["count"] == len(sent)
    there = await asked.http.get(f"{PATH}/records?offset=0", headers={"accept": ARROW})
    assert read_arrow(there.content).column("value").to_pylist() == sent
    assert asked.service.bodies.in_flight_bytes == 0


async def test_a_long_poll_waits_at_the_leader(asked: ListeningBroker, leader: ListeningBroker) -> None:
    polled = asyncio.ensure_future(asked.http.get(f"{PATH}/records?offset=0&wait_ms=15000"))
    await happens(lambda: leader.service.waiting.count == 1)
    await produce(leader, "one")
    assert [record["value"] for record in (await polled).json()["records"]] == ["one"]


async def test_a_client_that_leaves_ends_its_long_poll_at_the_leader(
    asked: ListeningBroker, leader: ListeningBroker
) -> None:
    polled = asyncio.ensure_future(asked.http.get(f"{PATH}/records?offset=0&wait_ms=15000"))
    await happens(lambda: leader.service.waiting.count == 1)
    polled.cancel()
    await happens(lambda: leader.service.waiting.count == 0)
    await happens(lambda: asked.service.waiting.count == 0)


async def test_an_event_stream_comes_through_and_ends_with_its_client(
    asked: ListeningBroker, leader: ListeningBroker
) -> None:
    await produce(leader, "one")
    async with asked.http.stream("GET", f"{PATH}/records", headers={"accept": EVENTS}) as stream:
        events = stream.aiter_text()
        assert (await anext(events)).startswith("id: 0\n")
        await produce(leader, "two")
        assert (await anext(events)).startswith("id: 1\n")
    await happens(lambda: leader.service.waiting.count == 0)
    resumed = {"accept": EVENTS, "last-event-id": "0"}
    async with asked.http.stream("GET", f"{PATH}/records", headers=resumed) as stream:
        assert (await anext(stream.aiter_text())).startswith("id: 1\n")


async def test_a_broker_that_stops_ends_forwarded_streams_as_complete_answers(
    asked: ListeningBroker, leader: ListeningBroker
) -> None:
    polled = asyncio.ensure_future(asked.http.get(f"{PATH}/records?offset=0&wait_ms=15000"))
    stream = asyncio.ensure_future(asked.http.get(f"{PATH}/records", headers={"accept": EVENTS}))
    await happens(lambda: leader.service.waiting.count == 2)
    asked.service.waiting.drain()
    assert (await polled).json()["next_offset"] == 0
    assert (await stream).status_code == 200


async def test_a_leader_at_an_ipv6_address_is_reported_with_brackets(leader: ListeningBroker) -> None:
    settings = replace(SETTINGS, host="fd00::7", port=8080, etcd_endpoints="http://127.0.0.1:2379")
    app = create_app(leader.broker, settings, Runtime())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://[fd00::7]:8080") as http:
        answer = await http.get(f"{PATH}/records")
    assert answer.headers["tidelog-leader"] == "http://[fd00::7]:8080"
