"""A manifest of 100,000 simulated segments on the local disk: the bytes of an append, and the requests to open it.

The row measures a whole turn of versions: 512 differences, each larger than the one before, and then the whole list.
The figure is the mean size of the differences, divided by that for a list of 1,000. The size of the list is shown
beside it.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, compare
from tidelog.storage.layout import TopicPartition, segment_key
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.manifests.manifest_codec import DIFFERENCES_MAX
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.wrapping import Verb

FEW, MANY = 1_000, 100_000
RECORDS = 400_000
TOPIC, PLACE = "web", TopicPartition("11" * 16, 0)
CLIENT = "ManifestLog in this process, on a local directory"


@dataclass(frozen=True)
class Turn:
    """The bytes that a turn of versions sent, and the requests to open the partition after it."""

    difference_bytes: list[int]
    whole_bytes: int
    append_ms: float
    open_requests: int
    open_bytes: int
    open_ms: float


def rows(bench: Bench) -> list[Row]:
    many_segments = bench.scaled(MANY)
    turns = [asyncio.run(_turn(bench.fresh_folder(f"manifest-{n}"), n)) for n in (FEW, many_segments)]
    few, many = (_appends(turn, count) for turn, count in zip(turns, (FEW, many_segments), strict=True))
    appends = compare(
        "manifest-append",
        f"bytes of an append to a manifest of {many_segments:,} segments, against one of {FEW:,}",
        Goal("1.1 x", 1.1, at_least=False),
        many,
        few,
    )
    goal = Goal("at most 3", 3, at_least=False)
    opened = turns[1]
    facts = [f"{opened.open_bytes / 1e6:.1f} MB, {opened.open_ms:.0f} ms"]
    requests = Side("Tidelog", CLIENT, "requests", [float(opened.open_requests)], facts)
    what = f"requests to open a partition of {many_segments:,} segments"
    return [appends, Row("manifest-open", what, goal, requests.median, [requests])]


def _appends(turn: Turn, segments: int) -> Side:
    kb = statistics.mean(turn.difference_bytes) / 1e3
    least, most = min(turn.difference_bytes) / 1e3, max(turn.difference_bytes) / 1e3
    facts = [
        f"{least:.1f} to {most:.1f} kB in {turn.append_ms:.1f} ms",
        f"the list itself, once in {DIFFERENCES_MAX + 1} versions: {turn.whole_bytes / 1e6:.2f} MB",
    ]
    return Side(f"{segments:,} segments", CLIENT, "kB", [kb], facts)


async def _turn(folder: Path, segments: int) -> Turn:
    local = LocalObjectStore(folder)
    store = CountingObjectStore(local)
    log = ManifestLog(store, TOPIC, PLACE)
    listed = tuple(_segment(number) for number in range(segments))
    manifest = await log.append(Manifest(PLACE, segments=listed, cold_end=segments * RECORDS))
    sent, took_ms = [], []
    for number in range(segments, segments + DIFFERENCES_MAX + 1):
        segment = _segment(number)
        longer = replace(manifest, segments=(*manifest.segments, segment), cold_end=segment.next_offset)
        before, began = store.usage(), time.perf_counter()
        manifest = await log.append(longer)
        took_ms.append((time.perf_counter() - began) * 1e3)
        sent.append((store.usage() - before).total(Verb.CREATE).sent_bytes)
    assert manifest.base_version is None, "a turn ends with a whole list"
    await log.append(manifest)
    before, began = store.usage(), time.perf_counter()
    await ManifestLog(store, TOPIC, PLACE).latest()
    open_ms, opened = (time.perf_counter() - began) * 1e3, store.usage() - before
    await local.aclose()
    return Turn(
        sent[:-1], sent[-1], statistics.median(took_ms), opened.requests(), opened.total().received_bytes, open_ms
    )


def _segment(number: int) -> Segment:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    base, last, at_ms = number * RECORDS, (number + 1) * RECORDS - 1, 1_700_000_000_000 + number * 60_000
    key = segment_key(TOPIC, PLACE.topic_id, PLACE.partition, base, last, digest[:32])
    return Segment(key, base, last, RECORDS, 128_000_000 + number, at_ms, at_ms + 59_999, digest, 800_000_000, 2, at_ms)
