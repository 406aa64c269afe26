"""A shard's manifest with 100,000 simulated segments, each of four partitions: the bytes of an append, the requests to
open a partition, and the time to plan what expires.

The bytes are those of the versions after a new list, each of which has one more difference to it, beside those for a
list of 4,500 segments, on the local disk. A partition is opened as a broker does that knows nothing of the shard, in a
shard with one topic of 100,000 segments and in one with 100 topics of 1,000 segments; a request takes 30 ms there.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from benchmarks import made_up_bucket
from benchmarks.bench import Bench
from benchmarks.made_up_bucket import REQUEST_S, MadeUpBucket
from benchmarks.measure import Goal, Row, Side, compare
from tidelog.services.broker.shard.shard_partitions import ShardPartitions
from tidelog.storage.layout import shard_segment_key
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep.retention import plan_expiry
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec

FEW, MANY = 4_500, 100_000
"""Fewer have no list (`topic_lists.DIFFERENCES_MIN`)."""
APPENDS = 64
TOPICS_A_PASS = 8
PARTITIONS, SPANS, RECORDS = 300, 4, 400_000
TOPIC, TOPIC_ID, SHARD = "web", "11" * 16, 0
PLANS = 5
CLIENT = "ShardLog in this process, on a local directory"
OPENER = f"ShardPartitions in this process, on a bucket in memory that takes {REQUEST_S * 1e3:.0f} ms for a request"
OPENED_TOPICS = (1, 100)


@dataclass(frozen=True)
class Turn:
    """The bytes that versions sent, and the times to plan the topic's expiry."""

    version_bytes: list[int]
    list_bytes: int
    append_ms: float
    plan_ms: list[float]


@dataclass(frozen=True)
class Opened:
    """The opening of the first partition of a shard with so many topics."""

    topics: int
    segments: int
    requests: int
    received_bytes: int
    ms: float

    def __str__(self) -> str:
        topics = f"{self.topics} topic{'s' * (self.topics > 1)} of {self.segments // self.topics:,} segments"
        return f"{topics}: {self.requests} requests, {self.received_bytes / 1e6:.1f} MB, {self.ms:.0f} ms"


def rows(bench: Bench) -> list[Row]:
    many_segments = bench.scaled(MANY)
    turns = [asyncio.run(_turn(bench.fresh_folder(f"manifest-{n}"), n)) for n in (FEW, many_segments)]
    few, many = (_appends(turn, count) for turn, count in zip(turns, (FEW, many_segments), strict=True))
    appends = compare(
        "manifest-append",
        f"bytes of an append to a topic of {many_segments:,} segments, against one of {FEW:,}",
        Goal("1.1 x", 1.1, at_least=False),
        many,
        few,
    )
    opened = [asyncio.run(_opened(topics, many_segments)) for topics in OPENED_TOPICS]
    requests = Side("Tidelog", OPENER, "requests", [each.requests for each in opened], list(map(str, opened)))
    what = f"requests to open a partition in a shard of {many_segments:,} segments"
    open_row = Row("manifest-open", what, Goal("at most 3", 3, at_least=False), requests.high, [requests])
    plans = Side("Tidelog", "the planning of ExpireTask", "ms", turns[1].plan_ms)
    what = f"ms to plan the expiry of {many_segments:,} segments and {SPANS * many_segments:,} spans"
    return [
        appends,
        open_row,
        Row("expiry-plan", what, Goal("at most 100", 100, at_least=False), plans.median, [plans]),
    ]


def _appends(turn: Turn, segments: int) -> Side:
    kb = statistics.mean(turn.version_bytes) / 1e3
    least, most = min(turn.version_bytes) / 1e3, max(turn.version_bytes) / 1e3
    facts = [
        f"{least:.1f} to {most:.1f} kB in {turn.append_ms:.1f} ms",
        f"the list itself: {turn.list_bytes / 1e6:.2f} MB",
    ]
    return Side(f"{segments:,} segments", CLIENT, "kB", [kb], facts)


async def _turn(folder: Path, segments: int) -> Turn:
    local = LocalObjectStore(folder)
    store = CountingObjectStore(local)
    log = ShardLog(store, SHARD, Runtime())
    await log.latest()
    manifest = await log.append(_change(range(segments)))
    stored = manifest.topics[TOPIC_ID].stored
    assert stored is not None, "so many segments have a list"
    await log.append(ManifestChange(ChangeKind.SWEEP))  # the first version records all segments that it added
    sent, took_ms = [], []
    for number in range(segments, segments + APPENDS):
        before, began = store.usage(), time.perf_counter()
        await log.append(_change([number]))
        took_ms.append((time.perf_counter() - began) * 1e3)
        sent.append((store.usage() - before).total(Verb.CREATE).sent_bytes)
    topic = (await log.with_lists(await log.latest(), [TOPIC_ID])).topics[TOPIC_ID]
    await local.aclose()
    return Turn(
        sent,
        stored.size_bytes,
        statistics.median(took_ms),
        [_plan_ms(topic, segments) for _ in range(PLANS)],
    )


async def _opened(topics: int, segments: int) -> Opened:
    """Open a partition of the topic that was written first, which has a list."""
    bucket = MadeUpBucket()
    await bucket.fill(topics, segments // topics, a_pass=TOPICS_A_PASS)
    store = CountingObjectStore(bucket)
    began, log = time.perf_counter(), ShardLog(store, made_up_bucket.SHARD, Runtime())
    partitions = ShardPartitions(log, Wal(store, log.shard, ParquetWalCodec(), log))
    state = await partitions.load(bucket.topic(0), 0)
    took_ms = (time.perf_counter() - began) * 1e3
    assert state.cold_end == segments // topics * made_up_bucket.RECORDS
    usage = store.usage()
    return Opened(topics, segments, usage.requests(), usage.total().received_bytes, took_ms)


def _plan_ms(topic: TopicState, segments: int) -> float:
    """The time to plan that half of the segments expire."""
    topic = replace(topic)  # without what it has computed before
    began = time.perf_counter()
    expiry = plan_expiry(topic, UpkeepRules(retention_ms=0, retention_bytes=1 << 40), _at_ms(segments // 2))
    change = expiry.change(TOPIC) if expiry else None
    took_ms = (time.perf_counter() - began) * 1e3
    assert change is not None, "half of the segments are too old"
    return took_ms


def _change(numbers: Sequence[int]) -> ManifestChange:
    """The segments of these numbers, one after the other."""
    added = tuple(_segment(number) for number in numbers)
    ends = {span.partition: ColdState(cold_end=span.next_offset) for segment in added for span in segment.spans}
    return ManifestChange(ChangeKind.ARCHIVE, {TOPIC_ID: TopicChange(TOPIC, added=added, partitions=ends)})


def _segment(number: int) -> TopicSegment:
    """Segment *n* has the next records of four partitions in turn."""
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    turn, at = divmod(number * SPANS, PARTITIONS)
    base = turn * RECORDS
    spans = tuple(SegmentSpan(at + n, base, base + RECORDS - 1, RECORDS, 250_000_000) for n in range(SPANS))
    key, at_ms = shard_segment_key(TOPIC, TOPIC_ID, SHARD, digest[:32]), _at_ms(number)
    return TopicSegment(key, number, 2, 128_000_000 + number, digest, at_ms, at_ms + 59_999, at_ms, spans)


def _at_ms(number: int) -> int:
    return 1_700_000_000_000 + number * 60_000
