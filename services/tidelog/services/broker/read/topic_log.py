"""Describes where the records of a topic are: one shard from one version of its manifest, and pages over all shards.

A topic may have a hundred thousand segments in a shard, so spans and segments are chosen in columns, and only those of
a page become objects. A page ends when it has `limit` spans, but it has at least one segment of a shard that has any.

    after = "3"        the next page begins with shard 3
    after = "3.57.20"  it continues version 57 of shard 3 at its 20th segment of those that were asked for

A later page of a shard is of the same version as the first one, so all of them together are one moment. The version
stays readable for ``delete.grace.ms``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np

from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.errors import Conflict, Corrupt, Invalid, NotFound
from tidelog.storage.manifests.json_envelope import Ints
from tidelog.storage.manifests.segment_columns import SegmentColumns
from tidelog.storage.manifests.segment_list import SegmentList
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import ColdState
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.wire.topic_log import (
    PartitionLogDescription,
    SegmentDescription,
    SpanDescription,
    TopicLogDescription,
    TopicLogRequest,
)

SHARDS_AT_ONCE = 16
INLINE_SEGMENTS_MAX = 1_000
"""A hundred thousand segments of ten partitions take a tenth of a second."""
_AFTER = re.compile(r"(\d{1,9})(?:\.(\d{1,18})\.(\d{1,18}))?")

AskShard: TypeAlias = Callable[[int, TopicLogRequest], Awaitable[TopicLogDescription]]
"""The page of one shard, whose number comes first, from its leader."""


@dataclass(frozen=True)
class Place:
    """Where a page begins: with `shard`, or at segment `index` in `version` of it."""

    shard: int
    version: int | None = None
    index: int = 0

    def text(self) -> str:
        return f"{self.shard}" if self.version is None else f"{self.shard}.{self.version}.{self.index}"


def place_of(request: TopicLogRequest) -> Place | None:
    """Where the page begins; None: with the first shard. Raises `Invalid`."""
    if request.after is None:
        return None
    found = _AFTER.fullmatch(request.after)
    if not found:
        raise Invalid("after must be the `next` of the page before", field="after")
    shard, version, index = (None if part is None else int(part) for part in found.groups())
    return Place(shard or 0, version, index or 0)


def partitions_in(topic: Topic, shard: int, request: TopicLogRequest) -> list[int]:
    """The partitions of the topic in `shard` that are asked for."""
    return [number for number in _asked(topic, request) if topic.shards[number] == shard]


async def topic_log_page(topic: Topic, store: str, request: TopicLogRequest, ask: AskShard) -> TopicLogDescription:
    """One page over the shards of `topic`. Raises `Invalid`, and what `ask` raises."""
    place = place_of(request)
    shards = sorted({topic.shards[number] for number in _asked(topic, request)})
    waiting = [shard for shard in shards if request.shard in (None, shard) and (not place or shard >= place.shard)]
    if place and place.version is not None and waiting[:1] != [place.shard]:
        raise Invalid("after is of another request: repeat the request with the same parameters", field="after")
    pages: list[TopicLogDescription] = []
    left = request.limit
    while waiting and left > 0:
        # After the first page, a shard may take a page alone. So it is asked alone, and no answer is thrown away.
        count = 1 if place else SHARDS_AT_ONCE
        wave, waiting = waiting[:count], waiting[count:]
        after = place.text() if place and place.version is not None else None
        asked = [msgspec.structs.replace(request, shard=shard, after=after, limit=left) for shard in wave]
        answers = await asyncio.gather(*(ask(shard, one) for shard, one in zip(wave, asked, strict=True)))
        taken = _taken(answers, left, first=not pages)
        pages += answers[:taken]
        left -= sum(len(segment.spans) for page in answers[:taken] for segment in page.segments)
        waiting, place = [*wave[taken:], *waiting], None
        if pages[-1].next:
            return _whole(topic, store, pages, pages[-1].next)
        if taken < len(wave):
            break
    return _whole(topic, store, pages, Place(waiting[0]).text() if waiting else None)


def _taken(answers: Sequence[TopicLogDescription], limit: int, *, first: bool) -> int:
    """How many of the answers fit into a page; at least one, if they are the `first` ones. None follows one that is not
    complete."""
    spans = 0
    for number, page in enumerate(answers):
        spans += sum(len(segment.spans) for segment in page.segments)
        if spans > limit and (number or not first):
            return number
        if page.next:
            return number + 1
    return len(answers)


def _whole(
    topic: Topic, store: str, pages: Sequence[TopicLogDescription], following: str | None
) -> TopicLogDescription:
    return TopicLogDescription(
        topic.name,
        topic.topic_id,
        store,
        tuple(one for page in pages for one in page.partitions),
        tuple(segment for page in pages for segment in page.segments),
        following,
    )


def _asked(topic: Topic, request: TopicLogRequest) -> Sequence[int]:
    if request.partitions is None:
        return range(topic.partition_count)
    for number in request.partitions:
        if number >= topic.partition_count:
            known = f"it has 0 to {topic.partition_count - 1}"
            raise Invalid(f"{topic.name} has no partition {number}: {known}", field="partitions")
    return sorted(set(request.partitions))


async def version_with_list(log: ShardLog, version: int, topic: Topic) -> ShardManifest:
    """An earlier `version` with the list of `topic`. Raises `Conflict` if it is gone."""
    try:
        known = log.known
        manifest = known if known is not None and known.version == version else await log.read(version)
        return await log.with_lists(manifest, [topic.topic_id])
    except (NotFound, Corrupt) as error:
        gone = f"version {version} of shard {log.shard}, which the first page was of, cannot be read any more ({error})"
        raise Conflict(f"{gone}: begin again without `after`") from error


async def shard_page(
    topic: Topic, manifest: ShardManifest, request: TopicLogRequest, high_watermarks: Mapping[int, int] | None = None
) -> TopicLogDescription:
    """`described_shard`, in a thread if the shard has many segments of the topic."""
    state = manifest.topics.get(topic.topic_id)
    if state is None or len(state.segments) <= INLINE_SEGMENTS_MAX:
        return described_shard(topic, manifest, request, high_watermarks)
    return await asyncio.to_thread(described_shard, topic, manifest, request, high_watermarks)


def described_shard(
    topic: Topic, manifest: ShardManifest, request: TopicLogRequest, high_watermarks: Mapping[int, int] | None = None
) -> TopicLogDescription:
    """The page of one shard: `manifest`, in which the list of `topic` was read. `high_watermarks`: of the partitions
    that are asked for; None for a later page, which does not repeat the partitions."""
    place = place_of(request)
    state = manifest.topics.get(topic.topic_id, TopicState(topic.name))
    states = {number: state.partition(number) for number in partitions_in(topic, manifest.shard, request)}
    log_starts = {number: found.log_start_offset for number, found in states.items()}
    first = place.index if place else 0
    segments, following = described_segments(manifest.shard, state.segments, request, log_starts, first)
    return TopicLogDescription(
        topic.name,
        topic.topic_id,
        "",
        () if high_watermarks is None else _partitions(manifest, states, high_watermarks),
        segments,
        None if following is None else Place(manifest.shard, manifest.version, following).text(),
    )


def _partitions(
    manifest: ShardManifest, states: Mapping[int, ColdState], high_watermarks: Mapping[int, int]
) -> tuple[PartitionLogDescription, ...]:
    return tuple(
        PartitionLogDescription(
            number,
            manifest.shard,
            manifest.version,
            state.log_start_offset,
            state.cold_end,
            state.clean_end,
            high_watermarks[number],
        )
        for number, state in states.items()
    )


@dataclass(frozen=True)
class _Chosen:
    """Segments of a list, by their places there, and the spans that were asked for."""

    columns: SegmentColumns
    segments: Ints
    wanted: np.typing.NDArray[np.bool_]

    @property
    def starts(self) -> Ints:
        ends = self.columns.span_ends[self.segments]
        return np.where(self.segments > 0, self.columns.span_ends[self.segments - 1], 0) if len(ends) else ends

    @property
    def places(self) -> tuple[Ints, Ints, Ints]:
        """The order of the log: run, first partition, first offset."""
        starts, columns = self.starts, self.columns
        return columns.run[self.segments], columns.partition[starts], columns.base_offset[starts]

    @property
    def spans(self) -> Ints:
        """How many spans of each segment are wanted."""
        counts = np.bincount(self.columns.segment_of_span[self.wanted], minlength=len(self.columns))
        return counts[self.segments]


def described_segments(
    shard: int, segments: SegmentList, request: TopicLogRequest, log_starts: Mapping[int, int], first: int
) -> tuple[tuple[SegmentDescription, ...], int | None]:
    """The segments from the `first` on of those that were asked for, and the number of the next one if some are left.
    `log_starts`: of the partitions that were asked for. Spans below them are left out."""
    listed = [_chosen(segments.stored, segments.removed, request, log_starts)]
    listed.append(_chosen(segments.added, frozenset(), request, log_starts))
    origin = np.concatenate([np.full(len(each.segments), number) for number, each in enumerate(listed)])
    index = np.concatenate([each.segments for each in listed])
    order = np.lexsort(
        tuple(np.concatenate(keys) for keys in reversed(list(zip(*(e.places for e in listed), strict=True))))
    )
    order = order[first:]
    spans = np.cumsum(np.concatenate([each.spans for each in listed])[order])
    count = max(1, int(np.searchsorted(spans, request.limit, side="right")))
    described = tuple(_described(shard, listed[int(origin[at])], int(index[at])) for at in order[:count])
    return described, first + count if count < len(order) else None


def _chosen(
    columns: SegmentColumns, removed: frozenset[int], request: TopicLogRequest, log_starts: Mapping[int, int]
) -> _Chosen:
    if not len(columns):
        return _Chosen(columns, np.empty(0, np.int64), np.empty(0, np.bool_))
    starts = np.full(int(columns.partition.max()) + 1, np.iinfo(np.int64).max)
    for number, offset in log_starts.items():
        if number < len(starts):
            starts[number] = max(offset, request.min_offset or 0)
    wanted = columns.last_offset >= starts[columns.partition]
    if request.max_offset is not None:
        wanted &= columns.base_offset <= request.max_offset
    times = np.ones(len(columns), np.bool_)
    if request.min_timestamp is not None:
        times &= columns.max_timestamp_ms >= request.min_timestamp
    if request.max_timestamp is not None:
        times &= columns.min_timestamp_ms <= request.max_timestamp
    times[list(removed)] = False
    wanted &= times[columns.segment_of_span]
    return _Chosen(columns, np.unique(columns.segment_of_span[wanted]), wanted)


def _described(shard: int, chosen: _Chosen, index: int) -> SegmentDescription:
    columns, segment = chosen.columns, chosen.columns.segment(index)
    return SegmentDescription(
        key=segment.key,
        shard=shard,
        level=segment.level,
        size_bytes=segment.size_bytes,
        sha256=segment.sha256,
        min_timestamp=segment.min_timestamp_ms,
        max_timestamp=segment.max_timestamp_ms,
        records=segment.records,
        partitions=len(segment.spans),
        spans=tuple(_spans(chosen, int(columns.span_starts[index]), int(columns.span_ends[index]))),
    )


def _spans(chosen: _Chosen, start: int, end: int) -> Iterator[SpanDescription]:
    columns = chosen.columns
    for at in (start + np.flatnonzero(chosen.wanted[start:end])).tolist():
        values = (columns.partition, columns.base_offset, columns.last_offset, columns.records, columns.first_row)
        yield SpanDescription(*(int(column[at]) for column in values))
