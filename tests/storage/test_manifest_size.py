"""The cost to open and append to a partition of 100,000 segments, compared with one of 1,000.

The segments are generated. The figures are printed (`pytest -s`); `python -m benchmarks manifest-size` measures the
same.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace

from tests.storage.manifest_histories import TOPIC, a_list, a_segment, archived
from tests.storage.record_tables import WEB

from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_codec import DIFFERENCES_MAX
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

FEW, MANY = 1_000, 100_000
APPENDS = 40


@dataclass(frozen=True)
class Cost:
    """The cost of `APPENDS` appends and of opening afterwards."""

    append_bytes: list[int]
    append_ms: float
    open_requests: int
    open_bytes: int
    open_ms: float


async def cost_of(segments: int) -> Cost:
    counting = CountingObjectStore(MemoryObjectStore())
    log = ManifestLog(counting, TOPIC, WEB)
    manifest = await log.append(Manifest(WEB, segments=a_list(segments), cold_end=segments * 1_000))
    sent, took_ms = [], []
    for number in range(segments, segments + APPENDS):
        grown, before, began = archived(manifest, number), counting.usage(), time.perf_counter()
        manifest = await log.append(grown)
        took_ms.append((time.perf_counter() - began) * 1e3)
        spent = counting.usage() - before
        assert spent.requests() == 1
        sent.append(spent.total(Verb.CREATE).sent_bytes)
    before, began = counting.usage(), time.perf_counter()
    assert len((await ManifestLog(counting, TOPIC, WEB).latest()).segments) == segments + APPENDS
    opened, opened_ms = counting.usage() - before, (time.perf_counter() - began) * 1e3
    return Cost(sent, statistics.median(took_ms), opened.requests(), opened.total().received_bytes, opened_ms)


async def test_an_append_to_100_000_segments_sends_what_one_to_1_000_does() -> None:
    few, many = await cost_of(FEW), await cost_of(MANY)
    for segments, cost in ((FEW, few), (MANY, many)):
        print(
            f"{segments:,} segments: an append sends {cost.append_bytes[0]:,} to {cost.append_bytes[-1]:,} bytes in "
            f"{cost.append_ms:.1f} ms; opening takes {cost.open_requests} requests, {cost.open_bytes:,} bytes and "
            f"{cost.open_ms:.0f} ms"
        )
    assert all(more <= less * 1.02 for less, more in zip(few.append_bytes, many.append_bytes, strict=True))
    assert few.open_requests == many.open_requests == 3


async def test_the_largest_difference_is_a_small_object() -> None:
    """The largest difference, and then the whole list, stored without compression."""
    counting = CountingObjectStore(MemoryObjectStore())
    log = ManifestLog(counting, TOPIC, WEB)
    manifest = await log.append(Manifest(WEB, segments=a_list(2_000), cold_end=2_000_000))
    removed = DIFFERENCES_MAX // 4  # each is removed and becomes garbage, and another takes its place: three of four
    came = tuple(a_segment(number, salt="other") for number in range(removed))
    before = counting.usage()
    manifest = await log.append(replace(manifest, segments=(*came, *manifest.segments[removed:])))
    assert manifest.base_version == 0
    assert (counting.usage() - before).total(Verb.CREATE).sent_bytes < 150_000
