"""Groups in a bucket that fails, loses answers and applies writes late, while brokers stall and others take over.

A key is committed to 1, 2, 3, … by one broker after the other. Whatever happens: an acknowledged commit is never lost,
no offset goes back, and a broker that was overtaken gets no further commit acknowledged. Repeatable by its seed.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.groups.group_store_conformance import put
from tests.coordinator.groups.seeds import seeds
from tests.coordinator.virtual_time import LoopClock, run_virtually
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.journal import journal_compaction
from tidelog.coordinator.groups.journal.journal_reading import JournalReader
from tidelog.coordinator.groups.stored import offset_key
from tidelog.storage.errors import Fenced, Unavailable
from tidelog.storage.layout import EMBEDDED_GROUPS
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

GRACE_S = 60.0
KEY = offset_key("g", "web", 0)
WEATHER = FaultPlan(
    unavailable=0.03, contended=0.02, reset=0.03, lost_answer=0.04, delayed=0.02, slow=0.01, slow_s_max=300.0
)
"""A slow request begins up to five graces late: long enough that its number is deleted and free again."""
LIFE_S = 6_000.0
BROKERS = 6


class World:
    """`acknowledged`: the highest offset that a client was told is stored. `newest`: the broker that took over last."""

    def __init__(self, seed: int) -> None:
        self.bucket = MemoryObjectStore()
        self.seed = seed
        self.offered = 0
        self.acknowledged = 0
        self.acknowledgements = 0
        self.fenced = 0
        self.newest = -1
        self.leads_since: dict[int, int] = {}

    async def broker(self, number: int) -> None:
        """Take over, commit until fenced, and stay until the end."""
        runtime = Runtime(LoopClock(), SeededEntropy(1_000 * self.seed + number))
        faulty = FaultyObjectStore(self.bucket, WEATHER, runtime)
        store = BucketGroupStore(faulty, runtime, grace_s=GRACE_S)
        await runtime.clock.sleep(number * LIFE_S / BROKERS)
        try:
            await self._take_over(store, number)
            while True:
                await self._commit(store, number)
                await runtime.clock.sleep(runtime.entropy.uniform(0.0, 4.0))
        except Fenced:
            self.fenced += 1

    async def _take_over(self, store: BucketGroupStore, number: int) -> None:
        while True:
            before = self.acknowledged
            try:
                found = await store.load("g")
            except Unavailable:
                continue
            assert int(found.get(KEY, b"0")) >= before, "an acknowledged commit was lost"
            self.newest = number
            return

    async def _commit(self, store: BucketGroupStore, number: int) -> None:
        self.offered += 1
        offset = self.offered
        while True:
            try:
                await store.write([put(KEY, str(offset))])
            except Unavailable:
                continue
            assert self.newest == number, "a broker that was overtaken has acknowledged a commit"
            self.acknowledged = max(self.acknowledged, offset)
            self.acknowledgements += 1
            return


@pytest.mark.parametrize("seed", seeds(6, soak=60))
def test_no_acknowledged_commit_is_lost_and_nobody_commits_after_he_was_overtaken(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_compaction, "ENTRIES_MAX", 8)

    async def life() -> World:
        world = World(seed)
        brokers = [asyncio.create_task(world.broker(number)) for number in range(BROKERS)]
        done, going = await asyncio.wait(brokers, timeout=LIFE_S)
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        for task in done:
            task.result()
        state = await JournalReader(world.bucket, EMBEDDED_GROUPS).read()
        assert world.acknowledged <= int(state.keys.get(KEY) or 0) <= world.offered
        return world

    world = run_virtually(life())
    assert world.acknowledgements > 100
    assert world.fenced >= 1
