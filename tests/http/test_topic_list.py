"""The list of topics: in pages, from memory, and complete even if a topic is deleted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker
from tests.http.requests import problem

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits, FetchPart
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.app import create_app
from tidelog.services.http.v1.topic_list import LIMIT_MAX, PARTITIONS_PER_PAGE_MAX, topic_range
from tidelog.storage.errors import Corrupt, NotFound, TidelogError
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

NAMES = [f"t{n}" for n in range(7)]


@pytest.fixture
async def topics(client: httpx.AsyncClient) -> list[str]:
    """Seven topics of two partitions."""
    for name in NAMES:
        assert (await client.post("/v1/topics", json={"name": name})).status_code == 201
    return NAMES


async def names_of(client: httpx.AsyncClient, **query: str | int) -> list[list[str]]:
    """The names on each page."""
    pages, more = [], True
    while more:
        page = (await client.get("/v1/topics", params=query)).json()
        pages.append([topic["name"] for topic in page["topics"]])
        more = "next" in page
        query["after"] = page.get("next", "")
    return pages


@pytest.mark.parametrize("detail", ["true", "false"])
async def test_a_list_comes_in_pages_by_name(client: httpx.AsyncClient, topics: list[str], detail: str) -> None:
    assert await names_of(client, detail=detail) == [topics]
    assert await names_of(client, detail=detail, limit=3) == [topics[:3], topics[3:6], topics[6:]]
    assert await names_of(client, detail=detail, limit=7) == [topics]
    assert await names_of(client, detail=detail, after="t4") == [["t5", "t6"]]
    assert await names_of(client, detail=detail, after="zzz") == [[]]
    assert await names_of(client, detail=detail, limit=LIMIT_MAX + 1) == [topics]


async def test_a_page_continues_behind_a_topic_that_was_deleted(client: httpx.AsyncClient, topics: list[str]) -> None:
    first = (await client.get("/v1/topics?limit=2")).json()
    await client.delete(f"/v1/topics/{first['next']}")
    assert (await client.get(f"/v1/topics?limit=2&after={first['next']}")).json()["topics"][0]["name"] == "t2"


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "detail=yes", "page=2", "limit=1&limit=2"])
async def test_parameters_are_read_strictly(client: httpx.AsyncClient, query: str) -> None:
    problem(await client.get(f"/v1/topics?{query}"), 400, "invalid")


async def test_a_list_after_a_restart_asks_the_bucket_nothing() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    async with running_broker(counting, archiver_upkeep=False) as broker:
        for name in NAMES:
            await broker.create_topic(ANYBODY, name, 100, {})
    async with running_broker(counting, archiver_upkeep=False) as broker:
        app = create_app(broker, SETTINGS, Runtime())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            before = counting.usage()
            found = (await client.get("/v1/topics")).json()["topics"]
            assert (counting.usage() - before).requests() == 0
    assert [(topic["name"], len(topic["partitions"])) for topic in found] == [(name, 100) for name in NAMES]


@pytest.mark.parametrize(
    ("error", "code"), [(Corrupt("a/manifest", "cut off"), "corrupt"), (NotFound("gone"), "not_found")]
)
async def test_one_topic_whose_details_fail_is_named_and_the_others_are_reported(
    client: httpx.AsyncClient,
    broker: LocalBroker,
    topics: list[str],
    monkeypatch: pytest.MonkeyPatch,
    error: TidelogError,
    code: str,
) -> None:
    known = broker.fetch_parts

    async def damaged(
        context: RequestContext, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        return [
            FetchedPart(each.part, None, error) if (each.part.topic, each.part.partition) == ("t3", 1) else each
            for each in await known(context, parts, limits)
        ]

    monkeypatch.setattr(broker, "fetch_parts", damaged)
    page = (await client.get("/v1/topics?detail=true")).json()
    [failed] = page["failed"]
    assert (failed["topic"], failed["code"]) == ("t3", code)
    assert failed["detail"]
    told = {topic["name"]: topic["partitions"][1] for topic in page["topics"]}
    assert set(told) == set(topics) - ({"t3"} if code == "not_found" else set())
    assert told.get("t3", {"partition": 1, "shard": 1}) == {"partition": 1, "shard": 1}, "what is in memory"
    assert told["t2"]["high_watermark"] == 0
    assert "failed" not in (await client.get("/v1/topics")).json()


def of_partitions(*counts: int) -> Sequence[Topic]:
    return [Topic(f"t{n}", f"{n:032x}", (0,) * count) for n, count in enumerate(counts)]


def test_a_page_ends_before_it_has_too_many_partitions() -> None:
    large = of_partitions(PARTITIONS_PER_PAGE_MAX - 1, 1, 1, PARTITIONS_PER_PAGE_MAX + 1, 1)
    sizes, after, more = [], "", True
    while more:
        page = topic_range(large, after, LIMIT_MAX, PARTITIONS_PER_PAGE_MAX)
        sizes.append(len(page.topics))
        after, more = page.next_after or "", page.next_after is not None
    assert sizes == [2, 1, 1, 1], "one that is larger than a page is a page"
