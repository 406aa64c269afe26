"""``GET /v1/topics``: topics by name, in pages, from memory.

A page ends after `limit` topics, or before it has too many partitions, but it has one topic at least. Its `next` is the
name to give as `after` for the page that follows.

The offsets of partitions are told only if they are asked for (`detail`): a partition that is not loaded costs a look at
the bucket. A topic whose look fails (it was deleted meanwhile, or an object of it is damaged) is named under `failed`,
and the others are told all the same.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.http.answers.problems import problem_of
from tidelog.storage.errors import NotFound, TidelogError

LIMIT_MAX = 1_000
PARTITIONS_PER_PAGE_MAX = 10_000
DETAILED_PARTITIONS_MAX = 1_000
"""Of one page; each may cost a look at the bucket."""
LOOKS_AT_ONCE = 32


class PartitionPlaceJson(msgspec.Struct):
    """Where a partition lives."""

    partition: int
    shard: int


class PartitionJson(msgspec.Struct):
    """Where a partition lives and what it holds."""

    partition: int
    shard: int
    log_start_offset: int
    cold_end: int
    high_watermark: int


class ListedTopicJson(msgspec.Struct):
    """A topic; of its partitions offsets only if they were asked for and known."""

    name: str
    topic_id: str
    partitions: list[PartitionPlaceJson] | list[PartitionJson]
    configs: dict[str, str]
    created_at_ms: int


class FailedTopicJson(msgspec.Struct):
    """Why the details of a topic are missing."""

    topic: str
    code: str
    detail: str


class TopicListJson(msgspec.Struct, omit_defaults=True):
    """A page. `next`: none if it is the last one."""

    topics: list[ListedTopicJson]
    next: str | None = None
    failed: list[FailedTopicJson] = []


@dataclass(frozen=True)
class TopicPage:
    """Topics of one page; `next_after` is the name of the last one if more follow."""

    topics: Sequence[Topic]
    next_after: str | None


Look = Callable[[str, int], Awaitable[PartitionJson]]
"""What a partition of a topic holds."""


def topic_page(topics: Sequence[Topic], after: str, limit: int, partitions_max: int) -> TopicPage:
    """The page of `topics`, which are sorted by name, behind the name `after`."""
    first = bisect_right(topics, after, key=lambda topic: topic.name)
    last, partitions = first, 0
    while last < min(len(topics), first + limit):
        partitions += topics[last].partition_count
        if last > first and partitions > partitions_max:
            break
        last += 1
    more = first < last < len(topics)
    return TopicPage(topics[first:last], topics[last - 1].name if more else None)


def listed(page: TopicPage) -> TopicListJson:
    """The page as it is told from memory."""
    return TopicListJson([_listed(topic, _places(topic)) for topic in page.topics], page.next_after)


async def detailed(page: TopicPage, look: Look) -> TopicListJson:
    """The page with what each partition holds, by `look`, some side by side. Raises what is no `TidelogError`."""
    turns = asyncio.Semaphore(LOOKS_AT_ONCE)
    answer = TopicListJson([], page.next_after, failed=[])
    for topic, found in zip(
        page.topics, await asyncio.gather(*(_partitions(topic, look, turns) for topic in page.topics)), strict=True
    ):
        if isinstance(found, TidelogError):
            problem = problem_of(found)
            answer.failed.append(FailedTopicJson(topic.name, problem.code, problem.detail))
        if not isinstance(found, NotFound):
            answer.topics.append(_listed(topic, _places(topic) if isinstance(found, TidelogError) else found))
    return answer


async def partitions_of(topic: Topic, look: Look) -> list[PartitionJson]:
    """What each partition of one topic holds. Raises what `look` does."""
    found = await _partitions(topic, look, asyncio.Semaphore(LOOKS_AT_ONCE))
    if isinstance(found, TidelogError):
        raise found
    return found


async def _partitions(topic: Topic, look: Look, turns: asyncio.Semaphore) -> list[PartitionJson] | TidelogError:
    async def one(number: int) -> PartitionJson:
        async with turns:
            return await look(topic.name, number)

    found = await asyncio.gather(*(one(number) for number in range(topic.partition_count)), return_exceptions=True)
    failures = [error for error in found if isinstance(error, BaseException)]
    if not failures:
        return [partition for partition in found if isinstance(partition, PartitionJson)]
    unforeseen = next((error for error in failures if not isinstance(error, TidelogError)), None)
    if unforeseen is not None:
        raise unforeseen
    return next(error for error in failures if isinstance(error, TidelogError))


def _listed(topic: Topic, partitions: list[PartitionPlaceJson] | list[PartitionJson]) -> ListedTopicJson:
    return ListedTopicJson(topic.name, topic.topic_id, partitions, topic.config.as_kafka(), topic.created_at_ms)


def _places(topic: Topic) -> list[PartitionPlaceJson]:
    return [PartitionPlaceJson(number, shard) for number, shard in enumerate(topic.shards)]
