"""One commit a second, for ever: the journal does not grow, and a start does not become slower. In virtual time.

A year is scaled to six hours: their 21,600 commits are 43 times the distance of two snapshots. The bounds hold after an
hour, after two, and after six: once there are snapshots, nothing depends on the number of entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.coordinator.groups.group_store_conformance import put
from tests.coordinator.virtual_time import LoopClock, run_virtually

from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.journal.journal_compaction import ENTRIES_MAX
from tidelog.coordinator.groups.stored import head_key, offset_key
from tidelog.storage.object_store import list_all
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

GRACE_S = 600.0
"""The default of `delete.grace.ms`."""
PARTITIONS = 100
HOUR = 3_600


@dataclass(frozen=True)
class Sight:
    """The bucket at one moment, and what a start then takes."""

    objects: int
    size_bytes: int
    start_requests: int
    start_bytes: int
    offsets: int


async def sight(bucket: MemoryObjectStore) -> Sight:
    sizes = [info.size async for info in list_all(bucket, "")]
    counted = CountingObjectStore(bucket)
    reader = BucketGroupStore(counted, Runtime(LoopClock(), SeededEntropy(9)), grace_s=GRACE_S)
    found = await reader.load("g")
    usage = counted.usage().total()
    return Sight(len(sizes), sum(sizes), usage.requests, usage.received_bytes, len(found) - 1)


async def year(commits: int, sights_at: tuple[int, ...], every_s: float = 1.0) -> tuple[list[Sight], int, int]:
    """The sights after so many commits of one group with `PARTITIONS` partitions, the PUTs, and the commits."""
    bucket, clock = MemoryObjectStore(), LoopClock()
    counted = CountingObjectStore(bucket)
    store = BucketGroupStore(counted, Runtime(clock, SeededEntropy(1)), grace_s=GRACE_S, interval_s=0.25)
    await store.write([put(head_key("g"), "head")])
    sights = []
    for number in range(commits):
        await store.write([put(offset_key("g", "web", number % PARTITIONS), f"{number:050d}")])
        await clock.sleep(every_s)
        if number + 1 in sights_at:
            sights.append(await sight(await copied(bucket)))
    await store.aclose()
    return sights, counted.usage().requests(Verb.CREATE), commits


async def copied(bucket: MemoryObjectStore) -> MemoryObjectStore:
    """A copy, so that a start in it fences nobody."""
    copy = MemoryObjectStore()
    async for info in list_all(bucket, ""):
        await copy.create(info.key, (await bucket.get(info.key)).data)
    return copy


@pytest.mark.parametrize(("every_s", "hours"), [(1.0, 6), (0.3, 3)])
def test_commits_for_ever_neither_grow_the_bucket_nor_slow_a_start(every_s: float, hours: int) -> None:
    sights_at = tuple(HOUR * hour - 30 for hour in (1, 2, hours))
    sights, puts, commits = run_virtually(year(sights_at[-1], sights_at, every_s))
    awaiting_grace = int(GRACE_S / every_s)
    for each in sights:
        assert each.objects <= 3 * ENTRIES_MAX + awaiting_grace + 5
        assert each.start_requests <= ENTRIES_MAX + 6
        assert each.offsets == PARTITIONS
        assert each.start_bytes <= 400 * ENTRIES_MAX + 200 * PARTITIONS
        assert each.size_bytes <= 400 * each.objects + 4 * 200 * PARTITIONS
    assert puts <= commits * (1 + 1 / ENTRIES_MAX) + 3
    assert commits > 20 * ENTRIES_MAX


def test_large_commits_are_compacted_by_their_bytes() -> None:
    async def life() -> Sight:
        bucket, clock = MemoryObjectStore(), LoopClock()
        store = BucketGroupStore(bucket, Runtime(clock, SeededEntropy(1)), grace_s=GRACE_S)
        for number in range(400):
            metadata = str(number) * 1_000
            await store.write([put(offset_key("g", "web", each), metadata) for each in range(20)])
            await clock.sleep(10)
        await store.aclose()
        return await sight(await copied(bucket))

    found = run_virtually(life())
    assert found.start_bytes < 2_500_000
    assert found.size_bytes < 12_000_000
