"""Divides the topics into pages by name, and describes their partitions.

A page ends after `limit` topics or before it has too many partitions, but it has at least one topic. Its `next` is the
value of `after` for the following page.

The offsets of partitions are read only for a list with details, because a partition that is not loaded costs a request
to the store. A topic whose partitions cannot be read (an object of it is damaged, for example) is listed under
`failed`; the other topics are described. A topic that was deleted meanwhile is left out.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.errors import NotFound, TidelogError
from tidelog.wire.errors import problem_of
from tidelog.wire.topics import FailedTopic, ListedPartition, ListedTopic, PartitionDescription, TopicPage

LIMIT_MAX = 1_000
PARTITIONS_PER_PAGE_MAX = 10_000
DETAILED_PARTITIONS_MAX = 1_000
"""The partitions of a page with details. Each may cost a request to the store."""
READS_AT_ONCE = 32

ReadPartition: TypeAlias = Callable[[str, int], Awaitable[PartitionDescription]]
"""Reads the offsets of a partition of a topic."""


@dataclass(frozen=True)
class TopicRange:
    """The topics of one page; `next_after` is the name of the last one if more topics follow."""

    topics: Sequence[Topic]
    next_after: str | None


def topic_range(topics: Sequence[Topic], after: str, limit: int, partitions_max: int) -> TopicRange:
    """The page of `topics`, which are sorted by name, that begins after the name `after`."""
    first = bisect_right(topics, after, key=lambda topic: topic.name)
    last, partitions = first, 0
    while last < min(len(topics), first + limit):
        partitions += topics[last].partition_count
        if last > first and partitions > partitions_max:
            break
        last += 1
    more = first < last < len(topics)
    return TopicRange(topics[first:last], topics[last - 1].name if more else None)


def listed(page: TopicRange) -> TopicPage:
    """The page from memory, without offsets."""
    return TopicPage(tuple(_listed(topic, _places(topic)) for topic in page.topics), page.next_after)


async def detailed(page: TopicRange, read: ReadPartition) -> TopicPage:
    """The page with offsets; several partitions are read at the same time. Raises an error that is no
    `TidelogError`."""
    turns = asyncio.Semaphore(READS_AT_ONCE)
    found = await asyncio.gather(*(_partitions(topic, read, turns) for topic in page.topics))
    topics, failed = [], []
    for topic, partitions in zip(page.topics, found, strict=True):
        if isinstance(partitions, TidelogError):
            problem = problem_of(partitions)
            failed.append(FailedTopic(topic.name, problem.code, problem.detail))
        if not isinstance(partitions, NotFound):
            known = None if isinstance(partitions, TidelogError) else partitions
            topics.append(_listed(topic, _places(topic) if known is None else _with_offsets(known)))
    return TopicPage(tuple(topics), page.next_after, tuple(failed))


async def described_partitions(topic: Topic, read: ReadPartition) -> Sequence[PartitionDescription]:
    """The partitions of one topic. Raises the errors of `read`."""
    found = await _partitions(topic, read, asyncio.Semaphore(READS_AT_ONCE))
    if isinstance(found, TidelogError):
        raise found
    return found


async def _partitions(
    topic: Topic, read: ReadPartition, turns: asyncio.Semaphore
) -> Sequence[PartitionDescription] | TidelogError:
    async def one(number: int) -> PartitionDescription:
        async with turns:
            return await read(topic.name, number)

    found = await asyncio.gather(*(one(number) for number in range(topic.partition_count)), return_exceptions=True)
    failures = [error for error in found if isinstance(error, BaseException)]
    if not failures:
        return [partition for partition in found if isinstance(partition, PartitionDescription)]
    unexpected = next((error for error in failures if not isinstance(error, TidelogError)), None)
    if unexpected is not None:
        raise unexpected
    return next(error for error in failures if isinstance(error, TidelogError))


def _listed(topic: Topic, partitions: tuple[ListedPartition, ...]) -> ListedTopic:
    return ListedTopic(topic.name, topic.topic_id, partitions, topic.config.as_kafka(), topic.created_at_ms)


def _places(topic: Topic) -> tuple[ListedPartition, ...]:
    return tuple(ListedPartition(number, shard) for number, shard in enumerate(topic.shards))


def _with_offsets(partitions: Sequence[PartitionDescription]) -> tuple[ListedPartition, ...]:
    return tuple(ListedPartition(*msgspec.structs.astuple(partition)) for partition in partitions)
