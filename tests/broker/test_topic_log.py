"""Pages of a topic's log: pages of any size hold each segment and each end once, and only what was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.read.topic_log import described_shard, topic_log_page, version_with_list
from tidelog.storage.errors import Conflict, Invalid
from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicBase, TopicState
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest, joined, partition_ranges, whole_log

ID, SHARDS, PARTITIONS, RUNS = "70" * 16, 3, 9, 12
TOPIC = Topic("web", ID, tuple(number % SHARDS for number in range(PARTITIONS)))


def segment(shard: int, run: int) -> TopicSegment:
    """A run of all partitions of a shard; partition p gets p + 1 records in each."""
    spans = [
        SegmentSpan(p, run * (p + 1), (run + 1) * (p + 1) - 1, p + 1, 10) for p in range(shard, PARTITIONS, SHARDS)
    ]
    return TopicSegment(f"{shard}-{run:02d}", run, run % 3, 100, "", 1_000 * run, 1_000 * run + 999, 0, tuple(spans))


def manifest(shard: int) -> ShardManifest:
    """Half of the segments are in the stored list, one of which was removed; the others were added later."""
    stored, added = [segment(shard, run) for run in range(-1, RUNS // 2)], [segment(shard, r) for r in range(6, RUNS)]
    states = {p: ColdState(0, RUNS * (p + 1), clean_end=3) for p in range(shard, PARTITIONS, SHARDS)}
    topic = TopicState("web", base=TopicBase(columns_of(stored)), removed=frozenset({0}), added=columns_of(added))
    return ShardManifest(shard, 7, topics={ID: replace(topic, partitions=states)})


def ask(request: TopicLogRequest, manifests: Mapping[int, ShardManifest] | None = None) -> list[TopicLogDescription]:
    """All pages."""
    of = manifests or {shard: manifest(shard) for shard in range(SHARDS)}

    async def one(shard: int, asked: TopicLogRequest) -> TopicLogDescription:
        marks = {p: RUNS * (p + 1) + 5 for p in range(PARTITIONS)}
        later = asked.after is not None
        return described_shard(TOPIC, of[shard], asked, None if later else marks)

    pages = [asyncio.run(topic_log_page(TOPIC, "file:///data", request, one))]
    while after := pages[-1].next:
        pages.append(
            asyncio.run(topic_log_page(TOPIC, "file:///data", msgspec.structs.replace(request, after=after), one))
        )
    return pages


def keys(pages: Sequence[TopicLogDescription]) -> list[str]:
    return [segment.key for page in pages for segment in page.segments]


def test_one_page_has_every_segment_once_with_its_spans_and_rows() -> None:
    [page] = ask(TopicLogRequest())
    assert sorted(keys([page])) == [f"{shard}-{run:02d}" for shard in range(SHARDS) for run in range(RUNS)]
    assert [found.partition for found in joined([page]).partitions] == list(range(PARTITIONS))
    first = page.segments[0]
    assert [(span.partition, span.records, span.first_row) for span in first.spans] == [(0, 1, 0), (3, 4, 1), (6, 7, 5)]
    assert (first.records, first.partitions, first.shard) == (12, 3, 0)
    ends = page.partition(4)
    assert (ends.shard, ends.manifest_version, ends.cold_end, ends.clean_end, ends.high_watermark) == (1, 7, 60, 3, 65)
    spans = [span for _, span in page.spans()[4]]
    assert all(one.last_offset + 1 == following.base_offset for one, following in pairwise(spans))
    assert (spans[0].base_offset, spans[-1].last_offset) == (0, 59)


@given(st.integers(1, 120))
def test_pages_of_any_size_together_are_the_whole_answer(limit: int) -> None:
    [whole] = ask(TopicLogRequest())
    pages = ask(TopicLogRequest(limit=limit))
    assert all(sum(len(each.spans) for each in page.segments) <= max(3, limit) for page in pages)
    assert all(page.segments for page in pages)
    assert joined(pages) == joined([whole])


def test_a_page_continues_the_version_of_the_page_before() -> None:
    [first] = [ask(TopicLogRequest(limit=3))[0]]
    assert first.next == "0.7.1"


@pytest.mark.parametrize(
    ("request_", "runs", "partitions"),
    [
        (TopicLogRequest(partitions=(4,)), range(RUNS), {4}),
        (TopicLogRequest(partitions=(4,), min_offset=10, max_offset=14), [2], {4}),
        (TopicLogRequest(min_timestamp=3_500, max_timestamp=5_000), [3, 4, 5], set(range(PARTITIONS))),
        (TopicLogRequest(shard=2, min_timestamp=11_000), [11], {2, 5, 8}),
        (TopicLogRequest(partitions=(4,), min_offset=1_000), [], set()),
    ],
)
def test_only_spans_and_segments_that_are_asked_for_are_told(
    request_: TopicLogRequest, runs: Sequence[int], partitions: set[int]
) -> None:
    for limit in (1, 1_000):
        found = joined(ask(msgspec.structs.replace(request_, limit=limit)))
        assert sorted({int(segment.key[2:]) for segment in found.segments}) == list(runs)
        assert {span.partition for segment in found.segments for span in segment.spans} == partitions
        assert all(segment.partitions == 3 for segment in found.segments)


def test_spans_below_the_log_start_are_left_out_and_the_segment_says_that_it_holds_more() -> None:
    of = {shard: manifest(shard) for shard in range(SHARDS)}
    topic = of[0].topics[ID]
    started = {**topic.partitions, 3: ColdState(10, RUNS * 4)}
    of[0] = replace(of[0], topics={ID: replace(topic, partitions=started)})
    [page] = ask(TopicLogRequest(shard=0), of)
    assert next(span.base_offset for _, span in page.spans()[3]) == 8
    assert [(len(each.spans), each.partitions) for each in page.segments][:3] == [(2, 3), (2, 3), (3, 3)]


def test_an_empty_topic_has_its_ends_only() -> None:
    [page] = ask(TopicLogRequest(), {shard: ShardManifest(shard) for shard in range(SHARDS)})
    assert (len(page.partitions), page.segments) == (PARTITIONS, ())
    assert page.partition(0).manifest_version == -1


@pytest.mark.parametrize("after", ["", "x", "0.7", "-1", "9.7.1"])
def test_a_place_that_no_page_named_is_refused(after: str) -> None:
    with pytest.raises(Invalid) as refused:
        ask(TopicLogRequest(after=after))
    assert refused.value.field == "after"


def test_a_partition_that_the_topic_lacks_is_refused() -> None:
    with pytest.raises(Invalid, match="web has no partition 9: it has 0 to 8"):
        ask(TopicLogRequest(partitions=(9,)))


async def test_a_version_that_was_collected_is_a_conflict_and_an_older_one_that_is_there_is_read() -> None:
    store = MemoryObjectStore()
    log = ShardLog(store, 0, Runtime())
    for run in range(2):
        added = segment(0, run)
        ends = {span.partition: ColdState(0, span.next_offset) for span in added.spans}
        change = ManifestChange(ChangeKind.ARCHIVE, {ID: TopicChange("web", added=(added,), partitions=ends)})
        await log.append(change, log.known or await log.latest())
    assert len((await version_with_list(log, 0, TOPIC)).topics[ID].segments) == 1
    await log.delete(0)
    with pytest.raises(Conflict, match=r"version 0 of shard 0.* begin again"):
        await version_with_list(log, 0, TOPIC)


def test_a_reader_begins_again_once_if_a_version_is_gone() -> None:
    pages = ask(TopicLogRequest(limit=12))
    gone = {1}
    asked: list[str | None] = []
    following = {before.next: page for before, page in pairwise(pages)} | {None: pages[0]}

    def answer(request: TopicLogRequest) -> TopicLogDescription:
        asked.append(request.after)
        if len(asked) - 1 in gone:
            raise Conflict("begin again")
        return following[request.after]

    assert whole_log(TopicLogRequest(limit=12), answer) == joined(pages)
    assert asked[:3] == [None, pages[0].next, None]
    gone.update(range(len(asked), len(asked) + 9))
    with pytest.raises(Conflict):
        whole_log(TopicLogRequest(limit=12), answer)


def test_a_request_becomes_a_query_of_what_it_bounds() -> None:
    assert TopicLogRequest().query() == {}
    asked = TopicLogRequest(partitions=(7, 0, 1, 2), min_offset=0, fresh=False, limit=5)
    assert asked.query() == {"partitions": "0-2,7", "min_offset": "0", "fresh": "false", "limit": "5"}
    assert partition_ranges([5]) == "5"
