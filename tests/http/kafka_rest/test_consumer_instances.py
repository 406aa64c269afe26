"""Consumer instances: each call of the contract, and how the calls refuse."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.http.conftest import SETTINGS
from tests.http.kafka_rest.rest import BINARY, JSON, MANAGEMENT, placed, refused

from tidelog.services.settings.settings import Settings

ONE = "/consumers/g/instances/i"
OFFSETS = f"{ONE}/offsets"


async def create(client: httpx.AsyncClient, group: str = "g", **config: Any) -> str:
    """The path of a new instance; named ``i``, of the format json, reading from the start, unless `config` says."""
    body = {"name": "i", "format": "json", "auto.offset.reset": "earliest", **config}
    answer = await client.post(f"/consumers/{group}", json=body, headers={"content-type": MANAGEMENT})
    assert answer.status_code == 200, answer.text
    created = answer.json()
    assert created["base_uri"] == f"http://localhost/consumers/{group}/instances/{created['instance_id']}"
    assert answer.headers["content-type"] == MANAGEMENT
    return f"/consumers/{group}/instances/{created['instance_id']}"


async def post(client: httpx.AsyncClient, path: str, body: object) -> httpx.Response:
    return await client.post(path, content=json.dumps(body), headers={"content-type": MANAGEMENT})


async def done(client: httpx.AsyncClient, path: str, body: object) -> None:
    answer = await post(client, path, body)
    assert (answer.status_code, answer.content) == (204, b""), answer.text


async def get(client: httpx.AsyncClient, path: str, body: object | None = None) -> Any:
    content = None if body is None else json.dumps(body)
    answer = await client.request("GET", path, content=content, headers={"content-type": MANAGEMENT})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def poll(client: httpx.AsyncClient, path: str = ONE, kind: str = JSON, **query: int) -> list[dict[str, Any]]:
    answer = await client.get(f"{path}/records", params={"timeout": 0, **query}, headers={"accept": kind})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == kind
    records: list[dict[str, Any]] = answer.json()
    return records


def values(records: list[dict[str, Any]]) -> list[Any]:
    return [record["value"] for record in records]


def parts(*numbers: int, topic: str = "t") -> dict[str, Any]:
    return {"partitions": [{"topic": topic, "partition": number} for number in numbers]}


@pytest.fixture
async def topic(client: httpx.AsyncClient) -> None:
    """A topic `t` of two partitions: 0 to 4 in partition 0, 10 to 14 in partition 1."""
    await client.post("/v1/topics", json={"name": "t", "partitions": 2})
    for partition in (0, 1):
        records = [{"key": n, "value": 10 * partition + n} for n in range(5)]
        await placed(client, f"/topics/t/partitions/{partition}", json.dumps({"records": records}))


@pytest.mark.usefixtures("topic")
class TestReading:
    async def test_the_first_read_of_a_new_group_has_the_records(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        records = await poll(client)
        assert sorted(values(records)) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
        assert records[0].keys() == {"topic", "key", "value", "partition", "offset", "timestamp"}
        assert await poll(client) == []
        assert (await get(client, f"{ONE}/assignments")) == parts(0, 1)
        await placed(client, "/topics/t/partitions/1", '{"records":[{"value":15}]}')
        assert values(await poll(client)) == [15]

    async def test_each_page_continues_where_the_one_before_ended(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/assignments", parts(0, 1))
        seen: list[Any] = []
        while records := await poll(client, max_bytes=1):
            assert len(records) == 1
            seen += values(records)
        assert sorted(seen) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
        assert seen[:4] != sorted(seen)[:4], "both partitions are read in turn"

    async def test_binary_is_the_default_and_must_match_accept(self, client: httpx.AsyncClient) -> None:
        await create(client, format=None)
        await done(client, f"{ONE}/assignments", parts(0))
        for accept in (JSON, "application/json"):
            refused(await client.get(f"{ONE}/records", headers={"accept": accept}), 406, 40601)
        refused(await client.get(f"{ONE}/records", headers={"accept": "text/html"}), 406, 406)
        assert values(await poll(client, kind=BINARY))[1] == "MQ=="
        for accept in ("*/*", MANAGEMENT, f"{JSON}, {BINARY}"):
            answer = await client.get(f"{ONE}/records?timeout=0", headers={"accept": accept})
            assert answer.status_code == 200

    async def test_an_empty_read_lasts_its_timeout_and_records_end_it(self, live: httpx.AsyncClient) -> None:
        await live.post("/consumers/g", json={"name": "i", "format": "json"})
        await done(live, f"{ONE}/subscription", {"topics": ["t"]})
        assert await poll(live) == [], "auto.offset.reset is latest"
        began = time.monotonic()
        assert await poll(live, timeout=200) == []
        assert time.monotonic() - began >= 0.2
        waiting = asyncio.ensure_future(poll(live, timeout=9_000))
        await asyncio.sleep(0.05)
        await placed(live, "/topics/t/partitions/0", '{"records":[{"value":"new"}]}')
        assert values(await waiting) == ["new"]
        assert time.monotonic() - began < 5

    async def test_the_timeout_of_the_instance_is_the_default(self, live: httpx.AsyncClient) -> None:
        body = {"name": "i", "format": "json", "consumer.request.timeout.ms": "120", "fetch.min.bytes": "-1"}
        await live.post("/consumers/g", json=body)
        await done(live, f"{ONE}/assignments", parts(0))
        began = time.monotonic()
        assert (await live.get(f"{ONE}/records")).json() == []
        assert 0.12 <= time.monotonic() - began < 0.9

    async def test_fetch_min_bytes_waits_for_more_until_the_timeout(self, live: httpx.AsyncClient) -> None:
        body = {"name": "i", "format": "json", "auto.offset.reset": "earliest", "fetch.min.bytes": 5_000}
        await live.post("/consumers/g", json=body)
        await done(live, f"{ONE}/assignments", parts(0))
        waiting = asyncio.ensure_future(poll(live, timeout=9_000))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await placed(live, "/topics/t/partitions/0", json.dumps({"records": [{"value": "x" * 6_000}]}))
        assert len(await waiting) == 6

    async def test_two_reads_at_once_answer_each_record_once(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        seen: list[Any] = []
        while True:
            pages = await asyncio.gather(*(poll(client, max_bytes=1) for _ in range(4)))
            if not any(pages):
                break
            seen += [value for page in pages for value in values(page)]
        assert sorted(seen) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]

    async def test_a_record_that_is_not_json_is_named_and_can_be_passed(self, client: httpx.AsyncClient) -> None:
        await client.post("/v1/topics/t/partitions/0/records", json={"records": [{"value": "not json"}]})
        await placed(client, "/topics/t/partitions/0", '{"records":[{"value":6}]}')
        await create(client)
        await done(client, f"{ONE}/assignments", parts(0))
        assert values(await poll(client)) == [0, 1, 2, 3, 4]
        for _ in "ab":
            message = refused(await client.get(f"{ONE}/records?timeout=0", headers={"accept": JSON}), 422, 42207)
            assert "offset 5" in message
        await done(client, f"{ONE}/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 6}]})
        assert values(await poll(client)) == [6]

    async def test_positions_outside_the_log_begin_by_the_reset(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/assignments", parts(0))
        await client.post("/v1/topics/t/partitions/0/delete-records", json={"before_offset": 3})
        await done(client, f"{ONE}/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]})
        assert values(await poll(client, timeout=2_000)) == [3, 4]

    async def test_two_instances_share_the_partitions(self, client: httpx.AsyncClient) -> None:
        one, two = await create(client), await create(client, name="other")
        for path in (one, two):
            await done(client, f"{path}/subscription", {"topics": ["t"]})
        seen = values(await poll(client, one))
        assert len(seen) == 10
        owned: list[Any] = []
        async with asyncio.timeout(10):
            while len(owned) != 2 or owned[0] == owned[1]:
                seen += values(await poll(client, two)) + values(await poll(client, one))
                owned = [(await get(client, f"{path}/assignments"))["partitions"] for path in (one, two)]
                owned = owned if all(len(partitions) == 1 for partitions in owned) else []
        await placed(client, "/topics/t/partitions/0", '{"records":[{"value":"a"}]}')
        await placed(client, "/topics/t/partitions/1", '{"records":[{"value":"b"}]}')
        assert sorted(values(await poll(client, one)) + values(await poll(client, two))) == ["a", "b"]

    async def test_a_pattern_finds_topics_that_come_later(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/subscription", {"topic_pattern": "t|late-.*"})
        assert len(await poll(client)) == 10
        await client.post("/v1/topics", json={"name": "late-1", "partitions": 1})
        await placed(client, "/topics/late-1", '{"records":[{"value":"late"}]}')
        async with asyncio.timeout(10):
            found: list[Any] = []
            while not found:
                found = values(await poll(client, timeout=100))
        assert found == ["late"]
        assert (await get(client, f"{ONE}/subscription")) == {"topics": ["late-1", "t"]}


@pytest.mark.usefixtures("topic")
class TestOffsets:
    async def committed(self, client: httpx.AsyncClient, path: str = ONE) -> dict[int, int]:
        found = await get(client, f"{path}/offsets", parts(0, 1))
        return {one["partition"]: one["offset"] for one in found["offsets"]}

    async def test_a_commit_stores_the_next_offset_and_its_metadata(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/assignments", parts(0, 1))
        offsets = [{"topic": "t", "partition": "0", "offset": "2", "metadata": "m"}]
        await done(client, OFFSETS, {"offsets": offsets})
        found = await get(client, OFFSETS, parts(0, 1))
        assert found == {"offsets": [{"topic": "t", "partition": 0, "offset": 3, "metadata": "m"}]}

    @pytest.mark.parametrize("body", [b"", b"{}", b'{"offsets":null}'])
    async def test_an_empty_commit_stores_what_was_read(self, client: httpx.AsyncClient, body: bytes) -> None:
        await create(client, **{"auto.commit.enable": "false"})
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        await poll(client)
        await poll(client)
        assert await self.committed(client) == {}
        headers = {"content-type": MANAGEMENT} if body else {}
        assert (await client.post(OFFSETS, content=body, headers=headers)).status_code == 204
        assert await self.committed(client) == {0: 5, 1: 5}
        assert (await client.post(OFFSETS, content=body, headers=headers)).status_code == 204

    async def test_the_next_read_commits_the_one_before(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        await poll(client)
        assert await self.committed(client) == {}
        await poll(client)
        assert await self.committed(client) == {0: 5, 1: 5}

    async def test_a_deleted_instance_commits_what_it_read_and_its_successor_continues(
        self, client: httpx.AsyncClient
    ) -> None:
        await create(client)
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        assert len(await poll(client)) == 10
        assert (await client.delete(ONE)).status_code == 204
        refused(await client.delete(ONE), 404, 40403)
        await placed(client, "/topics/t/partitions/0", '{"records":[{"value":"next"}]}')
        await create(client)
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        assert values(await poll(client)) == ["next"]

    async def test_a_deleted_subscription_commits_what_was_read(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        await poll(client)
        assert (await client.delete(f"{ONE}/subscription")).status_code == 204
        assert await self.committed(client) == {0: 5, 1: 5}
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        assert await poll(client) == []

    async def test_without_a_commit_a_successor_reads_again(self, client: httpx.AsyncClient) -> None:
        for _ in "ab":
            await create(client, **{"auto.commit.enable": False})
            await done(client, f"{ONE}/subscription", {"topics": ["t"]})
            assert len(await poll(client)) == 10
            assert (await client.delete(ONE)).status_code == 204

    async def test_a_commit_of_a_partition_of_another_member_is_refused(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        await poll(client)
        other = await create(client, name="other")
        await done(client, f"{other}/assignments", parts(0))
        offset = {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
        refused(await post(client, f"{other}/offsets", offset), 409, 40903)

    async def test_reset_none_needs_a_committed_offset(self, client: httpx.AsyncClient) -> None:
        await create(client, **{"auto.offset.reset": "none"})
        await done(client, f"{ONE}/assignments", parts(0))
        refused(await client.get(f"{ONE}/records?timeout=0", headers={"accept": JSON}), 500, 50002)
        await done(client, OFFSETS, {"offsets": [{"topic": "t", "partition": 0, "offset": 2}]})
        assert values(await poll(client)) == [3, 4]


@pytest.mark.usefixtures("topic")
class TestPositions:
    @pytest.fixture(autouse=True)
    async def instance(self, client: httpx.AsyncClient) -> None:
        await create(client)
        await done(client, f"{ONE}/assignments", parts(0, 1))

    @pytest.mark.parametrize("slashes", ["/", "//"])
    async def test_to_the_beginning_and_to_the_end(self, client: httpx.AsyncClient, slashes: str) -> None:
        assert len(await poll(client)) == 10
        await done(client, f"{ONE}/positions{slashes}beginning", parts(1))
        assert values(await poll(client)) == [10, 11, 12, 13, 14]
        await done(client, f"{ONE}/positions/beginning", parts(0, 1))
        await done(client, f"{ONE}/positions{slashes}end", parts(1))
        assert values(await poll(client)) == [0, 1, 2, 3, 4]

    async def test_to_an_offset_with_metadata(self, client: httpx.AsyncClient) -> None:
        offsets = [
            {"topic": "t", "partition": 0, "offset": "3", "metadata": "m"},
            {"topic": "t", "partition": "1", "offset": 4},
        ]
        await done(client, f"{ONE}/positions", {"offsets": offsets})
        assert sorted(values(await poll(client))) == [3, 4, 14]

    @pytest.mark.parametrize("timestamp", [5_000, "5000", "1970-01-01T00:00:05Z"])
    async def test_to_a_time(self, client: httpx.AsyncClient, timestamp: object) -> None:
        records = [{"value": n, "timestamp": n * 1_000} for n in range(10)]
        await client.post("/v1/topics", json={"name": "times", "partitions": 1})
        await placed(client, "/topics/times", json.dumps({"records": records}))
        await done(client, f"{ONE}/assignments", parts(0, topic="times"))
        times = [{"topic": "times", "partition": 0, "timestamp": timestamp}]
        await done(client, f"{ONE}/positions", {"timestamps": times})
        assert values(await poll(client)) == [5, 6, 7, 8, 9]

    async def test_a_partition_that_is_not_assigned_is_refused(self, client: httpx.AsyncClient) -> None:
        for path in ("beginning", "end"):
            refused(await post(client, f"{ONE}/positions/{path}", parts(2)), 409, 40903)
        offset = {"topic": "t", "partition": 7, "offset": 1}
        refused(await post(client, f"{ONE}/positions", {"offsets": [offset]}), 409, 40903)


@pytest.mark.usefixtures("topic")
class TestStates:
    async def test_subscriptions_are_read_replaced_and_deleted(self, client: httpx.AsyncClient) -> None:
        await create(client)
        path = f"{ONE}/subscription"
        assert await get(client, path) == {"topics": []}
        await done(client, path, {"topics": ["other"]})
        await done(client, path, {"topics": ["t"]})
        assert await get(client, path) == {"topics": ["t"]}
        assert len(await poll(client)) == 10
        assert (await client.delete(path)).status_code == 204
        assert await get(client, path) == {"topics": []}
        assert await get(client, f"{ONE}/assignments") == parts()
        assert await poll(client) == []

    async def test_what_excludes_each_other(self, client: httpx.AsyncClient) -> None:
        await create(client)
        path = f"{ONE}/subscription"
        refused(await post(client, path, {"topics": ["t"], "topic_pattern": "t"}), 409, 40903)
        await done(client, path, {"topics": ["t"]})
        refused(await post(client, path, {"topic_pattern": "t"}), 409, 40901)
        refused(await post(client, f"{ONE}/assignments", parts(0)), 409, 40903)
        assert (await client.delete(path)).status_code == 204
        await done(client, f"{ONE}/assignments", parts(0))
        refused(await post(client, path, {"topics": ["t"]}), 409, 40903)
        assert await get(client, f"{ONE}/assignments") == parts(0)

    async def test_an_instance_exists_once(self, client: httpx.AsyncClient) -> None:
        await create(client)
        refused(await post(client, "/consumers/g", {"name": "i"}), 409, 40902)
        await create(client, "other-group")
        answer = await post(client, "/consumers/g", {})
        assert answer.json()["instance_id"].startswith("rest-")

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            ("{", 400, 400),
            ('{"format":"avro"}', 422, 42204),
            ('{"format":"xml"}', 422, 42204),
            ('{"format":7}', 422, 42204),
            ('{"auto.offset.reset":"smallest"}', 422, 42204),
            ('{"auto.commit.enable":"maybe"}', 422, 42204),
            ('{"fetch.min.bytes":-2}', 422, 42204),
            ('{"consumer.request.timeout.ms":"x"}', 422, 42204),
            ('{"consumer.request.timeout.ms":-1}', 422, 42204),
            ('{"name":"a/b"}', 422, 42204),
            ('{"name":""}', 422, 42204),
            ('{"nmae":"a"}', 422, 42204),
            ("[]", 422, 42204),
        ],
    )
    async def test_wrong_configs(self, client: httpx.AsyncClient, body: str, status: int, code: int) -> None:
        answer = await client.post("/consumers/g", content=body, headers={"content-type": MANAGEMENT})
        refused(answer, status, code)

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("DELETE", ""),
            ("GET", "/records"),
            ("GET", "/subscription"),
            ("DELETE", "/subscription"),
            ("GET", "/assignments"),
            ("GET", "/offsets"),
            ("POST", "/offsets"),
        ],
    )
    async def test_a_missing_instance_is_40403(self, client: httpx.AsyncClient, method: str, path: str) -> None:
        refused(await client.request(method, f"{ONE}{path}"), 404, 40403)

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/subscription", {"topics": ["t"]}),
            ("/assignments", parts(0)),
            ("/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}),
            ("/positions/beginning", parts(0)),
            ("/positions/end", parts(0)),
            ("/offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}),
        ],
    )
    async def test_posts_on_a_missing_instance_are_40403(
        self, client: httpx.AsyncClient, path: str, body: object
    ) -> None:
        refused(await post(client, f"{ONE}{path}", body), 404, 40403)

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("/subscription", "", 400),
            ("/subscription", "{}", 422),
            ("/subscription", '{"topics":[]}', 422),
            ("/subscription", '{"topics":"t"}', 422),
            ("/subscription", '{"topic_pattern":"("}', 422),
            ("/assignments", "{}", 422),
            ("/assignments", '{"partitions":[{"topic":"t"}]}', 422),
            ("/assignments", '{"partitions":[{"topic":"t","partition":-1}]}', 422),
            ("/positions", '{"offsets":[{"topic":"t","partition":0,"offset":-1}]}', 422),
            ("/positions", '{"timestamps":[{"topic":"t","partition":0,"timestamp":"noon"}]}', 422),
            ("/positions/beginning", "[]", 422),
            ("/offsets", '{"offsets":[{"topic":"t","partition":0,"offset":9223372036854775807}]}', 422),
            ("/offsets", '{"offsets":[{"topic":"t","partition":0}]}', 422),
            ("/offsets", "{", 400),
        ],
    )
    async def test_wrong_bodies(self, client: httpx.AsyncClient, path: str, body: str, status: int) -> None:
        await create(client)
        answer = await client.post(f"{ONE}{path}", content=body, headers={"content-type": MANAGEMENT})
        refused(answer, status, status)

    async def test_types_of_bodies_and_answers(self, client: httpx.AsyncClient) -> None:
        await create(client)
        body = json.dumps({"topics": ["t"]})
        for kind in ("text/csv", "application/vnd.kafka.v1+json"):
            answer = await client.post(f"{ONE}/subscription", content=body, headers={"content-type": kind})
            refused(answer, 415, 415)
        refused(await client.post("/consumers/g", headers={"origin": "http://localhost"}), 415, 415)
        refused(await client.get(f"{ONE}/subscription", headers={"accept": "text/html"}), 406, 406)
        refused(await client.get("/consumers"), 404, 404)
        refused(await client.get("/consumers/g"), 405, 405)


class TestBounds:
    @pytest.fixture
    def settings(self) -> Settings:
        return replace(SETTINGS, group_instances_max=2)

    async def test_further_instances_of_a_group_are_refused(self, client: httpx.AsyncClient) -> None:
        for name in "ab":
            await create(client, name=name)
        answer = await post(client, "/consumers/g", {"name": "c"})
        refused(answer, 503, 50302)
        assert int(answer.headers["retry-after"]) > 0
        await create(client, "other", name="c")
        assert (await client.delete("/consumers/g/instances/a")).status_code == 204
        await create(client, name="c")


@pytest.mark.usefixtures("topic")
async def test_after_another_subscription_no_record_of_the_former_topic_is_answered(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "u", "partitions": 1})
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    assert len(await poll(client, max_bytes=1)) == 1
    await done(client, f"{ONE}/subscription", {"topics": ["u"]})
    await placed(client, "/topics/u", '{"records":[{"value":"u"}]}')
    async with asyncio.timeout(10):
        seen: list[Any] = []
        while not seen:
            seen = values(await poll(client, timeout=100))
    assert seen == ["u"]


@pytest.mark.usefixtures("topic")
async def test_a_deleted_topic_is_left_out(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t", "u"]})
    assert len(await poll(client)) == 10
    assert (await client.delete("/v1/topics/t")).status_code == 204
    assert await poll(client) == []
    await client.post("/v1/topics", json={"name": "u", "partitions": 1})
    await placed(client, "/topics/u", '{"records":[{"value":"u"}]}')
    async with asyncio.timeout(10):
        seen: list[Any] = []
        while not seen:
            seen = values(await poll(client, timeout=100))
    assert seen == ["u"]
