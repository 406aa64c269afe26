"""``GET /v1/topics/{topic}/log``: where the records of a topic are, for programs that read the bucket directly.

A segment holds records of many partitions, and its *spans* say which. The records of a partition below its `cold_end`
are those of its spans, and a broker has the rest up to the high watermark. A span may begin below the log start of its
partition; the records there are deleted.

The answer comes in pages (`TopicLogDescription.next`). All that it says about one shard is of one moment, also if it
takes several pages. `joined` puts pages together. Times are in ms since 1970 UTC, sizes in bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec

from tidelog.storage.errors import Conflict
from tidelog.wire.counts import Count

SPANS_MAX = 20_000
"""The most spans of a page, and the default. A page of so many has some 2 MB."""


class SpanDescription(msgspec.Struct, frozen=True):
    """The records of one partition in a segment: `records` rows from `first_row` on, offsets ascending."""

    partition: Count
    base_offset: Count
    last_offset: Count
    records: Count
    first_row: Count


class SegmentDescription(msgspec.Struct, frozen=True):
    """One archived Parquet object. `key` is relative to the store's URL. `records` and `partitions` count all that the
    segment holds; `spans` has those that the request asked for, ascending by partition."""

    key: str
    shard: Count
    level: Count
    size_bytes: Count
    sha256: str
    min_timestamp: int
    max_timestamp: int
    records: Count
    partitions: Count
    spans: tuple[SpanDescription, ...]


class PartitionLogDescription(msgspec.Struct, frozen=True):
    """The ends of a partition: records are in ``[log_start_offset, high_watermark)``, archived below `cold_end`. Below
    `clean_end`, compaction has left one record of each key. `manifest_version` is that of its shard, -1 for none."""

    partition: Count
    shard: Count
    manifest_version: Annotated[int, msgspec.Meta(ge=-1)]
    log_start_offset: Count
    cold_end: Count
    clean_end: Count
    high_watermark: Count


class TopicLogDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page, or all of them (`joined`). The segments of a shard are in the order of its log. `next` is the value of
    `after` for the next page; None on the last one."""

    topic: str
    topic_id: str
    store: str
    partitions: tuple[PartitionLogDescription, ...]
    segments: tuple[SegmentDescription, ...]
    next: str | None = None

    def partition(self, number: int) -> PartitionLogDescription:
        """Raises `KeyError` if the answer does not have the partition."""
        for found in self.partitions:
            if found.partition == number:
                return found
        raise KeyError(f"{self.topic}-{number}")

    def spans(self) -> Mapping[int, Sequence[tuple[SegmentDescription, SpanDescription]]]:
        """The spans of each partition that has any, by offset, and the segments that hold them."""
        found: defaultdict[int, list[tuple[SegmentDescription, SpanDescription]]] = defaultdict(list)
        for segment in self.segments:
            for span in segment.spans:
                found[span.partition].append((segment, span))
        return {number: sorted(spans, key=lambda pair: pair[1].base_offset) for number, spans in sorted(found.items())}


class TopicLogRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which part of a topic's log is asked for; None: no bound, all bounds inclusive. Only spans within the bounds of
    partitions and offsets are told, and only segments that have one and may have records within the times. `shard`:
    only that one. `fresh` as in `Broker.topic_log`. `after`: the `next` of the page before."""

    partitions: tuple[int, ...] | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    shard: int | None = None
    limit: int = SPANS_MAX
    fresh: bool = True
    after: str | None = None

    def query(self) -> dict[str, str]:
        """The parameters of the request's URL."""
        given: dict[str, object] = msgspec.to_builtins(self)
        if self.partitions is not None:
            given["partitions"] = partition_ranges(self.partitions)
        return {name: "false" if value is False else str(value) for name, value in given.items()}


def partition_ranges(numbers: Iterable[int]) -> str:
    """`numbers` as a list such as ``0-3,7``."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)


AskPage: TypeAlias = Callable[[TopicLogRequest], TopicLogDescription]


def whole_log(request: TopicLogRequest, ask: AskPage) -> TopicLogDescription:
    """All pages that `ask` gives. If the moment of the first page is gone before the last one, it begins again, once.
    Raises what `ask` raises."""
    try:
        return joined(list(_pages(request, ask)))
    except Conflict:
        return joined(list(_pages(request, ask)))


def _pages(request: TopicLogRequest, ask: AskPage) -> Iterator[TopicLogDescription]:
    after: str | None = request.after
    while True:
        page = ask(msgspec.structs.replace(request, after=after))
        yield page
        after = page.next
        if after is None:
            return


def joined(pages: Sequence[TopicLogDescription]) -> TopicLogDescription:
    """All pages of one request as one description. There is at least one."""
    return TopicLogDescription(
        pages[0].topic,
        pages[0].topic_id,
        pages[0].store,
        tuple(sorted((one for page in pages for one in page.partitions), key=lambda one: one.partition)),
        tuple(segment for page in pages for segment in page.segments),
    )
