"""A random life of a cluster in virtual time, from a seed: ``python -m tests.coordinator.leadership_weather SEED``.

Brokers start, die, stop, restart and lose their connection to the store. The store answers late, fails, loses answers,
is away for a while, and may be wiped and recovered. During and shortly after these events anything may happen, except
that two hosts lead one shard in one epoch. At the end all faults stop and the cluster must come to rest: every shard
has a leader, shards are spread fairly, and every broker knows that.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.leadership_cluster import KEYS, SETTINGS, LeadershipCluster, founded, recover
from tests.coordinator.virtual_time import run_virtually

from tidelog.storage.errors import TidelogError, Unavailable

EVENTS = 25
NAMES = ("a", "b", "c", "d")
SHARDS = 10
CALM_S_MAX = 60.0


class LeadershipWeather:
    """One life. `seen` counts the events."""

    def __init__(self, cluster: LeadershipCluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._wiped = False
        self._may_wipe = seed % 3 == 0
        self.seen: Counter[str] = Counter()

    async def live(self) -> None:
        """Run the whole life. Raises `AssertionError`."""
        cluster, clock = self._cluster, self._cluster.runtime.clock
        cluster.way_s_max = self._random.choice((0.001, 0.02, 0.2))
        await self._start()
        for _ in range(EVENTS):
            happening = self._random.choice(self._possible())
            self.seen[happening.__name__.strip("_")] += 1
            await happening()
            await clock.sleep(self._random.choice((0.0, 0.1, 1.0, 4.0, 10.0)) * self._random.random())
        await self._calm()
        self.seen["settled"] += 1
        self.seen["claims"] += len(cluster.logs.asked("lead"))
        self.seen["fencings"] += len(cluster.logs.fenced)

    def _possible(self) -> list[Callable[[], Awaitable[None]]]:
        events: list[Callable[[], Awaitable[None]]] = [self._start, self._start, self._errors, self._slow_host]
        if self._wiped:
            return [*events, self._recover, self._recover]
        if len(self._cluster.members) > 1:
            events += [self._kill, self._stop, self._cut, self._cut, self._drain, self._outage]
        if self._may_wipe:
            events.append(self._wipe)
        return [*events, self._fence]

    # ---- what may happen

    async def _start(self) -> None:
        """Start a new broker, a new process of a running one, or one that comes back; refused while the store is
        empty."""
        name = self._random.choice(NAMES)
        if self._wiped:
            return
        for _ in range(20):
            try:
                await self._cluster.start(name)
            except Unavailable:
                continue
            else:
                return

    async def _kill(self) -> None:
        self._cluster.kill(self._any())

    async def _stop(self) -> None:
        await self._cluster.stop(self._any())

    async def _cut(self) -> None:
        """Cut a broker's connection to the store, or restore it."""
        network = self._cluster.members[self._any()].network
        if self._random.random() < 0.5:
            network.cut()
        else:
            network.heal()

    async def _outage(self) -> None:
        """The store is away for everybody, perhaps longer than a lease."""
        networks = [member.network for member in self._cluster.members.values()]
        for network in networks:
            network.cut()
        await self._cluster.runtime.clock.sleep(self._random.uniform(0.1, 15.0))
        for network in networks:
            network.heal()

    async def _errors(self) -> None:
        share = self._random.choice((0.0, 0.05, 0.3))
        for member in self._cluster.members.values():
            member.network.error_share = share

    async def _slow_host(self) -> None:
        """Claims and releases take time."""
        host = self._cluster.members[self._any()].host if self._cluster.members else None
        if host is not None:
            host.claim_s, host.drain_s = self._random.uniform(0, 8.0), self._random.uniform(0, 3.0)

    async def _drain(self) -> None:
        one, other = self._any(), self._any()
        try:
            await self._cluster.members[one].leadership.drain(other, undo=self._random.random() < 0.5)
        except TidelogError as error:
            self.seen[f"drain: {type(error).__name__}"] += 1

    async def _fence(self) -> None:
        """A host finds out that it no longer leads, as after a failure of the log."""
        host = self._cluster.members[self._any()].host if self._cluster.members else None
        if host is not None and (led := sorted(host.led())):
            host.fence(self._random.choice(led))

    async def _wipe(self) -> None:
        """An empty store answers under the old address."""
        self._wiped = self._cluster.logs.store_was_lost = True
        cluster = self._cluster
        cluster.store = EmbeddedKeyValueStore(cluster.runtime)
        for member in (*cluster.members.values(), *cluster.dead):
            member.network.replace(cluster.store)

    async def _recover(self) -> None:
        self._wiped = False
        await recover(self._cluster)

    def _any(self) -> str:
        return self._random.choice(sorted(self._cluster.members))

    # ---- the end

    async def _calm(self) -> None:
        """Everything works again: the cluster comes to rest and stays at rest."""
        cluster = self._cluster
        if self._wiped:
            await self._recover()
        for earlier in cluster.dead:  # a process that outlived a later one with its id may lead again
            earlier.network.cut()
            earlier.host.crash()
        for member in cluster.members.values():
            member.network.heal()
            member.network.error_share = 0.0
            member.host.claim_s = member.host.drain_s = 0.01
            member.network.way_s_max = 0.002
        for name in NAMES:
            await cluster.store.delete(KEYS.drained(name))
        await cluster.runtime.clock.sleep(SETTINGS.lease_ttl_s + 5.0)
        stepped_down = [name for name, member in cluster.members.items() if member.leadership.stop_reason]
        for name in stepped_down or ([] if cluster.members else ["a"]):
            await cluster.start(name)
        await cluster.until(cluster.is_settled, CALM_S_MAX)
        told = len(cluster.logs.history)
        await cluster.runtime.clock.sleep(40.0)
        assert cluster.is_settled(), cluster.describe()
        assert cluster.logs.history[told:] == [], f"at rest nothing moves: {cluster.logs.history[told:][:4]}"


async def live(seed: int) -> Counter[str]:
    """Run one life; return its events. Raises `AssertionError` with the seed."""
    async with founded(SHARDS, seed) as cluster:
        weather = LeadershipWeather(cluster, seed)
        await weather.live()
    return weather.seen


if __name__ == "__main__":
    print(run_virtually(live(int(sys.argv[1]))))
