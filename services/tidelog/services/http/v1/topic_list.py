"""Divides the topics into pages by name, and describes their partitions.

A page ends after `limit` topics or before it has too many partitions, but it has at least one topic. Its `next` is the
value of `after` for the following page.

The offsets of partitions are read only for a list with details: those of a page with one call to each leader. A
partition that its leader has not loaded costs a request to the store. A topic whose partitions cannot be read (for
example, an object of it is damaged) is listed under `failed`; the other topics are described. A topic that was deleted
meanwhile is left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import LATEST, FetchedPart, FetchPart
from tidelog.storage.errors import NotFound, TidelogError, Unavailable
from tidelog.wire.errors import problem_of
from tidelog.wire.topics import FailedTopic, ListedPartition, ListedTopic, PartitionDescription, TopicPage

LIMIT_MAX = 1_000
PARTITIONS_PER_PAGE_MAX = 10_000
DETAILED_PARTITIONS_MAX = 1_000
"""The partitions of a page with details. Each may cost a request to the store."""
READS_AT_ONCE = 1_000
"""Partitions of one call."""

ReadOffsets: TypeAlias = Callable[[Sequence[FetchPart]], Awaitable[Sequence[FetchedPart]]]
"""Reads the ends of partitions; the answers are in the same order."""


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


async def detailed(page: TopicRange, read: ReadOffsets) -> TopicPage:
    """The page with offsets. Raises an error that is no `TidelogError`."""
    topics, failed = [], []
    for topic, partitions in zip(page.topics, await _partitions(page.topics, read), strict=True):
        if isinstance(partitions, TidelogError):
            problem = problem_of(partitions)
            failed.append(FailedTopic(topic.name, problem.code, problem.detail))
        if not isinstance(partitions, NotFound):
            known = None if isinstance(partitions, TidelogError) else partitions
            topics.append(_listed(topic, _places(topic) if known is None else _with_offsets(known)))
    return TopicPage(tuple(topics), page.next_after, tuple(failed))


async def described_partitions(topic: Topic, read: ReadOffsets) -> Sequence[PartitionDescription]:
    """The partitions of one topic. Raises the errors of its partitions."""
    (found,) = await _partitions((topic,), read)
    if isinstance(found, TidelogError):
        raise found
    return found


async def _partitions(
    topics: Sequence[Topic], read: ReadOffsets
) -> Sequence[Sequence[PartitionDescription] | TidelogError]:
    """The partitions of each topic, or the first error of one of them."""
    asked = [FetchPart(topic.name, number, LATEST, 0) for topic in topics for number in range(topic.partition_count)]
    answers: list[FetchedPart] = []
    for first in range(0, len(asked), READS_AT_ONCE):
        answers += await read(asked[first : first + READS_AT_ONCE])
    following = iter(answers)
    return [_described(topic, [next(following) for _ in topic.shards]) for topic in topics]


def _described(topic: Topic, answers: Sequence[FetchedPart]) -> Sequence[PartitionDescription] | TidelogError:
    described = []
    for shard, answer in zip(topic.shards, answers, strict=True):
        if answer.error:
            return answer.error
        ends = answer.fetched
        if ends is None or ends.cold_end is None:
            return Unavailable(f"the offsets of partition {answer.part.partition} are not known. Retry")
        described.append(
            PartitionDescription(
                answer.part.partition, shard, ends.log_start_offset, ends.cold_end, ends.high_watermark
            )
        )
    return described


def _listed(topic: Topic, partitions: tuple[ListedPartition, ...]) -> ListedTopic:
    return ListedTopic(topic.name, topic.topic_id, partitions, topic.config.as_kafka(), topic.created_at_ms)


def _places(topic: Topic) -> tuple[ListedPartition, ...]:
    return tuple(ListedPartition(number, shard) for number, shard in enumerate(topic.shards))


def _with_offsets(partitions: Sequence[PartitionDescription]) -> tuple[ListedPartition, ...]:
    return tuple(ListedPartition(*msgspec.structs.astuple(partition)) for partition in partitions)
