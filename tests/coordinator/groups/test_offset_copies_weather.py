"""Copies of offsets while leaders change unnoticed, etcd loses answers and the bucket fails. Repeatable by its seed.

Whatever happens: an offset in the copies never goes back, and no copy has an offset that etcd never had. Once the
weather is good again, the copies are what etcd has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.coordinator.groups.group_leaderships import SHARD, SHARDS
from tests.coordinator.groups.seeds import seeds
from tests.coordinator.groups.test_etcd_group_store_faults import DelayingKeyValueStore
from tests.coordinator.groups.test_offset_copies import MINE, Cluster, committed, offset_in
from tests.coordinator.virtual_time import LoopClock, run_virtually
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.coordinator.groups.copied_groups import copied_groups
from tidelog.coordinator.groups.copy_loop import CopyLoop
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.journal import journal_compaction
from tidelog.storage.errors import Fenced, Unavailable
from tidelog.storage.runtime import Runtime, SeededEntropy

GROUPS = MINE[:4]
BAD = FaultPlan(
    unavailable=0.05, contended=0.02, reset=0.05, lost_answer=0.05, delayed=0.03, slow=0.02, slow_s_max=200.0
)
LEADERS = 5
TERM_S = 150.0
SETTLED_S = 60.0


class World(Cluster):
    """`stored`: the highest offset that etcd may have of each group."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.delaying = DelayingKeyValueStore(seed)
        self.kv = self.delaying
        self.leaderships.kv = self.kv
        self.faulty = FaultyObjectStore(self.bucket, FaultPlan(), Runtime(LoopClock(), SeededEntropy(seed)))
        self.draws = SeededEntropy(seed + 7)
        self.stored = dict.fromkeys(GROUPS, 0)
        self.loops: list[CopyLoop] = []
        self.leading: list[asyncio.Task[None]] = []
        self.seen = dict.fromkeys(GROUPS, -1)

    async def take_over(self) -> None:
        """A new leader begins; the ones before do not notice, and go on until they are fenced."""
        store, copies = await self.lead(self.faulty)
        epoch = self.leaderships.epoch
        loop = CopyLoop(lambda: {SHARD: epoch}, lambda: SHARDS, lambda _: copies, self.runtime)
        loop.start()
        self.loops.append(loop)
        self.leading.append(asyncio.create_task(self._commit(store)))

    async def _commit(self, store: GroupStore) -> None:
        while True:
            group = GROUPS[int(self.draws.uniform(0, len(GROUPS)))]
            offset = self.stored[group] + 1
            try:
                await store.write(committed(group, offset))
                self.stored[group] = max(self.stored[group], offset)
            except Unavailable:
                self.stored[group] = max(self.stored[group], offset)  # it may be stored
            except Fenced:
                return
            await asyncio.sleep(self.draws.uniform(0.0, 6.0))

    async def look(self) -> Mapping[str, int]:
        """The copied offsets, which must be neither older than before nor ahead of etcd."""
        copies = await copied_groups(self.bucket, SHARDS)
        found = {group: offset_in(copies.get(group, {}), group) for group in GROUPS}
        for group, offset in found.items():
            assert self.seen[group] <= offset <= self.stored[group], group
        self.seen = found
        return found

    async def in_etcd(self) -> Mapping[str, int]:
        store = await self.leaderships.next_store()
        return {group: offset_in(await store.load(group), group) for group in GROUPS}


@pytest.mark.parametrize("seed", seeds(5, soak=50))
def test_copies_never_go_back_and_are_complete_in_the_end(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_compaction, "ENTRIES_MAX", 6)

    async def life() -> None:
        world = World(seed)
        await world.leaderships.found()
        for _ in range(LEADERS):
            world.delaying.bad, world.faulty.plan = False, FaultPlan()
            await world.take_over()
            world.delaying.bad, world.faulty.plan = True, BAD
            for _ in range(int(TERM_S / 5)):
                await asyncio.sleep(5.0)
                await world.look()
        world.delaying.bad, world.faulty.plan = False, FaultPlan()
        await asyncio.sleep(250.0)  # slow requests of the bad weather end
        world.leading[-1].cancel()
        await asyncio.sleep(SETTLED_S)
        assert await world.look() == await world.in_etcd()
        assert sum(world.stored.values()) > 100
        for loop in world.loops:
            await loop.close()
        await world.kv.aclose()

    run_virtually(life())
