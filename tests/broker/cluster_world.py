"""Several `ClusterBroker`s in one process on one bucket. The test decides which broker leads a shard.

`HandLed` replaces leadership by a key-value store. It tells brokers to lead and to release exactly when the test says
so, so a test can move a shard at any moment and repeat it. Brokers reach each other by `DirectPeers`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.broker.brokers import SETTINGS
from tests.broker.direct_peers import DirectPeers
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.groups.memory_group_store import MemoryGroupStore, StoredGroups

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterIdentity, ClusterKeys, LeaderRecord
from tidelog.coordinator.groups.group_store import GroupStore, HeadPage
from tidelog.coordinator.leadership.shard_host import CoordinatorHealth, ShardHost
from tidelog.coordinator.topics.catalog_sync import CatalogChange, CatalogSync
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.cluster.cluster_broker import ClusterBroker
from tidelog.services.broker.groups.group_stores import GroupStores
from tidelog.services.runtime.wiring import broker_parts
from tidelog.services.settings.settings import Settings
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock, Runtime, SystemClock

CLUSTER = replace(SETTINGS, forward_timeout_ms=10_000, flush_interval_ms=0)


class HandLed:
    """The `Coordination` and `ClusterView` of one broker. The test's `World` decides who leads."""

    def __init__(self, world: "World", name: str, parts: BrokerParts) -> None:
        self.world = world
        self._record = BrokerRecord(name, name, f"http://{name}", "none", "0", 0, eligible=True, stopping=False)
        self._frozen: dict[int, LeaderRecord] | None = None
        self._sync = CatalogSync(parts.journal, parts.catalog, world.kv, world.keys, Runtime())
        self.host: ShardHost = parts.shards
        self.identity = world.identity
        self.view = self

    async def join(self, on_change: Callable[[CatalogChange], None]) -> ClusterIdentity:
        self._sync.on_change(on_change)
        await self._sync.start()
        return self.identity

    async def lead(self) -> None:
        """Does nothing: the test decides when the broker leads."""

    async def hand_over(self) -> None:
        for shard in tuple(self.host.led()):
            await self.world.take(shard)

    async def leave(self) -> None:
        await self._sync.aclose()

    def group_stores(self) -> GroupStores:
        return WorldGroupStores(self)

    async def catch_up(self) -> None:
        await self._sync.refresh()

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:
        raise NotImplementedError(f"{broker_id}, {undo}: leadership by hand does not drain")

    async def must_stop(self) -> str:
        raise NotImplementedError("leadership by hand replaces nobody")

    def me(self) -> BrokerRecord:
        return self._record

    def brokers(self) -> Sequence[BrokerRecord]:
        return tuple(self.world.coordinations[name].me() for name in sorted(self.world.coordinations))

    def draining(self) -> frozenset[str]:
        return frozenset()

    def cut_off(self) -> None:
        """Cut the broker off: it learns of no new leader, and its lease has ended."""
        self._frozen = dict(self.world.leaders)

    def leaders(self) -> Mapping[int, LeaderRecord]:
        return dict(self.world.leaders) if self._frozen is None else self._frozen

    def leader_of(self, shard: int) -> BrokerRecord | None:
        leader = self.leaders().get(shard)
        return self.world.coordinations[leader.broker_id].me() if leader else None

    def surely_leads(self, shard: int, epoch: int) -> bool:
        leader = self.world.leaders.get(shard)
        mine = leader is not None and (leader.broker_id, leader.epoch) == (self._record.broker_id, epoch)
        return mine and self._frozen is None

    def health(self) -> CoordinatorHealth:
        reachable = self._frozen is None
        return CoordinatorHealth(reachable, trusted=True, reason="" if reachable else "etcd cannot be reached")

    async def changed(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.world.changed.wait()
        except TimeoutError:
            return


class WorldGroupStores:
    """The `GroupStores` of one broker: in memory, shared, and fenced by the leaders that the test has chosen."""

    def __init__(self, coordination: HandLed) -> None:
        self._coordination = coordination
        self._stored = coordination.world.stored_groups

    def of(self, shard: int, epoch: int) -> GroupStore:
        self._stored.epochs = self._coordination.world.epochs
        return MemoryGroupStore(self._stored, shard, epoch)

    async def heads(self, after: str, limit: int) -> HeadPage:
        return self._stored.heads(after, limit)

    def reachable(self) -> bool:
        return self._coordination.health().reachable

    def copy_age_s(self) -> float:
        return 0.0

    async def aclose(self) -> None:
        """Does nothing: it is memory."""


class World:
    """A cluster of brokers by name."""

    def __init__(self, shards: int) -> None:
        self.identity = ClusterIdentity(1, "c" * 32, "test", "etcd", shards, founded=True)
        self.keys = ClusterKeys("test")
        self.kv = EmbeddedKeyValueStore(Runtime())
        self.peers = DirectPeers()
        self.coordinations: dict[str, HandLed] = {}
        self.brokers: dict[str, ClusterBroker] = {}
        self.leaders: dict[int, LeaderRecord] = {}
        self.epochs: dict[int, int] = {}
        self.stored_groups = StoredGroups()
        self.changed = asyncio.Event()

    async def start(
        self, name: str, store: ObjectStore, settings: Settings = CLUSTER, clock: Clock | None = None
    ) -> ClusterBroker:
        parts = broker_parts(settings, Runtime(clock or SystemClock()), store)
        coordination = HandLed(self, name, parts)
        broker = ClusterBroker(parts, coordination, self.peers)
        self.coordinations[name] = coordination
        await broker.start()
        self.brokers[name] = broker
        self.peers.reachable[f"http://{name}"] = broker
        return broker

    async def give(self, shard: int, name: str) -> None:
        """Hand a shard over cleanly: the present leader releases it, then `name` leads."""
        await self.take(shard)
        await self.usurp(shard, name)

    async def take(self, shard: int) -> None:
        if leader := self.leaders.get(shard):
            await self._host(leader.broker_id).release(shard)
            del self.leaders[shard]
            self._tell()

    async def usurp(self, shard: int, name: str) -> None:
        """Let `name` lead without asking the present leader."""
        self.epochs[shard] = self.epochs.get(shard, 0) + 1
        self.leaders[shard] = LeaderRecord(name, name, self.epochs[shard])
        self._tell()
        await self._host(name).lead(shard, self.epochs[shard])

    async def kill(self, name: str) -> None:
        """Kill a broker at once: nobody can reach it, and it commits nothing more."""
        del self.peers.reachable[f"http://{name}"]
        host = self._host(name)
        for shard in tuple(host.led()):
            await host.abandon(shard)
            self.leaders.pop(shard, None)
        self._tell()

    def _host(self, name: str) -> ShardHost:
        return self.coordinations[name].host

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


@asynccontextmanager
async def running_world(
    stores: Mapping[str, ObjectStore],
    shards: int = 3,
    settings: Settings = CLUSTER,
    *,
    clock: Clock | None = None,
) -> AsyncIterator[World]:
    """Start one broker for each name in `stores`, each with its own view of the bucket. Broker i leads shard i."""
    world = World(shards)
    for name, store in stores.items():
        await world.start(name, store, settings, clock)
    names = tuple(stores)
    for shard in range(shards):
        await world.usurp(shard, names[shard % len(names)])
    try:
        yield world
    finally:
        for broker in world.brokers.values():
            await broker.aclose()
        await world.kv.aclose()
