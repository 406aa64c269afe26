"""Coordinators that replace each other over a store that fails, loses answers and is slow, in virtual time.

Clients commit growing offsets and read them back, at the present coordinator or at one that was replaced. An
acknowledged commit is never lost: a read that begins later gives it, or a later one.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest
from tests.coordinator.groups.driven import Driven
from tests.coordinator.groups.memory_group_store import MemoryGroupStore, StoredGroups
from tests.coordinator.groups.seeds import seeds
from tests.coordinator.virtual_time import run_virtually

from tidelog.coordinator.groups.group_step import Change
from tidelog.storage.errors import LeaderUnknown, Unavailable

COORDINATORS, CLIENTS, SECONDS = 6, 12, 120.0
FAILURE = 0.15


class StormyStore(MemoryGroupStore):
    """Slow by up to half a second; some calls fail, before or after they were applied."""

    def __init__(self, stored: StoredGroups, epoch: int, weather: random.Random) -> None:
        super().__init__(stored, 0, epoch)
        self._weather = weather

    async def load(self, group: str) -> Mapping[str, bytes]:
        await self._storm()
        return await super().load(group)

    async def write(self, changes: Sequence[Change]) -> None:
        await self._storm()
        await super().write(changes)
        await self._storm()

    async def _storm(self) -> None:
        await asyncio.sleep(self._weather.uniform(0, 0.25))
        if self._weather.random() < FAILURE:
            raise Unavailable("a storm")


class Sky:
    """The coordinators so far; the last one is the present one."""

    def __init__(self, seed: int) -> None:
        self.weather = random.Random(seed)
        self.stored = StoredGroups()
        self.coordinators: list[Driven] = []
        self.acknowledged = 0
        self.reads = 0

    def take_over(self) -> None:
        epoch = len(self.coordinators) + 1
        self.stored.epochs[0] = epoch
        driven = Driven(self.stored, wait_s=3.0, idle_s=5.0, store=StormyStore(self.stored, epoch, self.weather))

        async def prove() -> None:
            leads = self.stored.epochs[0] == epoch
            await asyncio.sleep(self.weather.uniform(0, 0.1))
            if not leads:
                raise LeaderUnknown("another one leads", retry_after_s=0.1)

        driven.prove = prove
        self.coordinators.append(driven)

    def any(self) -> Driven:
        """Mostly the present coordinator."""
        return self.coordinators[-1] if self.weather.random() < 0.7 else self.weather.choice(self.coordinators)


async def client(sky: Sky, number: int) -> None:
    group, acknowledged, tried = f"g{number % 4}", 0, 0
    while True:
        await asyncio.sleep(sky.weather.uniform(0, 0.5))
        try:
            if sky.weather.random() < 0.5:
                tried += 1
                await sky.any().commit(group, tried, number)
                acknowledged = tried
                sky.acknowledged += 1
            else:
                found = (await sky.any().offsets(group)).get(number, 0)
                assert acknowledged <= found <= tried, f"{group}: read {found} after {acknowledged} of {tried}"
                sky.reads += 1
        except Unavailable:
            continue


async def storm(seed: int) -> Sky:
    sky = Sky(seed)
    sky.take_over()
    clients = [asyncio.create_task(client(sky, number)) for number in range(CLIENTS)]
    for _ in range(COORDINATORS):
        await asyncio.wait(clients, timeout=SECONDS / COORDINATORS, return_when=asyncio.FIRST_EXCEPTION)
        for each in clients:
            if each.done():
                each.result()
        sky.take_over()
    for each in clients:
        each.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    for driven in sky.coordinators:
        await driven.coordinator.close(drain_s=1.0)
    return sky


@pytest.mark.parametrize("seed", seeds(6, soak=60))
def test_no_acknowledged_commit_is_lost(seed: int) -> None:
    sky = run_virtually(storm(seed))
    assert sky.acknowledged > 50
    assert sky.reads > 50
