"""Reads of brokers, topics, partitions and offsets, and how the interface refuses."""

from __future__ import annotations

import httpx
import pytest
from tests.http.kafka_rest.rest import MANAGEMENT, refused

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.kafka_rest.rest_errors import Code, code_of, message_of
from tidelog.storage.errors import (
    AlreadyExists,
    Corrupt,
    Denied,
    GroupFull,
    LeaderUnknown,
    NotLeader,
    Overloaded,
    Unavailable,
)


async def test_brokers_topics_partitions_and_offsets(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    number = 0  # that of a broker alone
    assert (await client.get("/brokers")).json() == {"brokers": [number]}
    assert (await client.get("/topics")).json() == ["web"]
    topic = (await client.get("/topics/web")).json()
    assert topic["name"] == "web"
    assert topic["configs"]["cleanup.policy"] == "delete"
    assert all(isinstance(value, str) for value in topic["configs"].values())
    replica = {"broker": number, "leader": True, "in_sync": True}
    partitions = [{"partition": one, "leader": number, "replicas": [replica]} for one in (0, 1)]
    assert topic["partitions"] == partitions
    assert (await client.get("/topics/web/partitions")).json() == partitions
    assert (await client.get("/topics/web/partitions/1")).json() == partitions[1]
    offsets = await client.get("/topics/web/partitions/0/offsets")
    assert offsets.json() == {"beginning_offset": 0, "end_offset": 3}
    assert offsets.headers["content-type"] == MANAGEMENT


@pytest.mark.parametrize("path", ["/brokers", "/topics", "/topics/web", "/topics/web/partitions/0/offsets"])
async def test_every_path_also_has_a_trailing_slash(client: httpx.AsyncClient, web: dict[int, int], path: str) -> None:
    plain, slashed = await client.get(path), await client.get(f"{path}/")
    assert plain.status_code == slashed.status_code == 200
    assert plain.json() == slashed.json()


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/none", 404, 40401),
        ("/topics/bad name!", 404, 40401),
        ("/topics/none/partitions", 404, 40401),
        ("/topics/none/partitions/0/offsets", 404, 40401),
        ("/topics/web/partitions/2", 404, 40402),
        ("/topics/web/partitions/-1", 404, 40402),
        ("/topics/web/partitions/99999999999/offsets", 404, 40402),
        ("/topics/web/partitions/x", 404, 404),
        ("/topics/web/partitions/x/offsets", 404, 404),
        ("/topics/web/nothing", 404, 404),
        ("/consumers", 404, 404),
        ("/v3/nothing", 404, 404),
    ],
)
async def test_missing_things_have_their_codes(
    client: httpx.AsyncClient, web: dict[int, int], path: str, status: int, code: int
) -> None:
    refused(await client.get(path), status, code)


async def test_another_method_is_refused_in_this_form(client: httpx.AsyncClient) -> None:
    refused(await client.delete("/topics"), 405, 405)


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/vnd.kafka.v2+json", 200),
        ("application/vnd.kafka+json", 200),
        ("application/json", 200),
        ("application/vnd.kafka.v2+json, application/vnd.kafka+json; q=0.9, application/json; q=0.8", 200),
        ("*/*", 200),
        ("text/html", 406),
        ("application/vnd.kafka.v1+json", 406),
    ],
)
async def test_accept_of_reads(client: httpx.AsyncClient, accept: str, status: int) -> None:
    answer = await client.get("/topics", headers={"accept": accept})
    if status == 200:
        assert answer.status_code == 200
        wanted = "application/json" if accept == "application/json" else MANAGEMENT
        assert answer.headers["content-type"] == wanted
    else:
        refused(answer, 406, 406)


async def test_the_front_refuses_in_this_form_too(client: httpx.AsyncClient) -> None:
    refused(await client.get("/topics", headers={"host": "evil.example"}), 403, 40301)
    refused(await client.get("/topics", headers={"origin": "https://evil.example"}), 403, 40301)
    refused(await client.post("/topics/web", content=b"{}"), 415, 415)
    refused(await client.get("/topics/web%2Fpartitions"), 400, 400)
    other = await client.get("/v1/topics/none")
    assert other.headers["content-type"] == "application/problem+json"


async def test_requests_are_counted_by_their_template(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    await client.get("/topics/web/partitions/0/offsets/")
    metrics = (await client.get("/metrics")).text
    assert 'route="/topics/{topic}/partitions/{partition}/offsets"' in metrics


def test_an_error_names_the_partitions_that_have_their_records() -> None:
    error = Unavailable("only a part of the request was applied")
    error.committed = (1, 3)
    assert message_of(error).endswith("In the log are the records for the partitions 1, 3")
    assert code_of(error) is Code.KAFKA_RETRIABLE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LeaderUnknown("no leader", retry_after_s=1), 40404),
        (NotLeader("another", leader="http://b"), 40404),
        (Overloaded("full", retry_after_s=1), 50302),
        (GroupFull("full", retry_after_s=1), 50301),
        (Unavailable("unknown"), 50003),
        (Corrupt("object", "damaged"), 50002),
        (Denied("no permission"), 50002),
        (AlreadyExists("exists"), 40002),
        (RuntimeError("a fault"), 500),
    ],
)
def test_errors_of_the_log_have_their_codes(error: Exception, code: int) -> None:
    assert code_of(error) == code
    assert code_of(error).http_status == int(str(code)[:3])


async def test_only_reads_are_told_that_a_leader_is_missing(
    client: httpx.AsyncClient, broker: LocalBroker, web: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that gets a 404 for a produce or for an instance gives up instead of sending it again."""

    async def missing(*_: object, **__: object) -> None:
        raise LeaderUnknown("the shard is moving", retry_after_s=2)

    for name in ("produce", "resolve"):
        monkeypatch.setattr(broker, name, missing)
    monkeypatch.setattr(broker.local_groups, "call", missing)
    answers = (
        (await client.get("/topics/web/partitions/0/offsets"), 404, 40404),
        (await client.post("/topics/web", json={"records": [{"value": 1}]}), 503, 50302),
        (await client.get("/consumers/g/instances/i/records"), 503, 50302),
    )
    for answer, status, code in answers:
        refused(answer, status, code)
        assert answer.headers["retry-after"] == "2"
