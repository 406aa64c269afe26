"""Brokers of one cluster in one process, with real leadership over one key-value store in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, until
from tests.broker.direct_peers import DirectPeers
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore

from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.services.broker.cluster.cluster_broker import ClusterBroker
from tidelog.services.broker.cluster.membership import Membership
from tidelog.services.runtime.wiring import broker_parts
from tidelog.services.settings.settings import Settings
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

QUICK = replace(SETTINGS, shards=4, lease_ttl_ms=20_000, rebalance_delay_ms=20, forward_timeout_ms=30_000)
"""Leases that a pause of a busy machine does not end: every broker here hands over before it stops."""


class SharedKeyValueStore(EmbeddedKeyValueStore):
    """A store that stays open when a broker closes it; only `end` closes it."""

    async def aclose(self) -> None:
        """Called by one broker; the other brokers keep using the store."""

    async def end(self) -> None:
        await super().aclose()


class Members:
    """The brokers that run, by id."""

    def __init__(self, kv: KeyValueStore) -> None:
        self.kv = kv
        self.peers = DirectPeers()
        self.brokers: dict[str, ClusterBroker] = {}

    async def start(self, name: str, store: ObjectStore, settings: Settings = QUICK) -> ClusterBroker:
        named = replace(settings, broker_id=name, advertised_address=f"http://{name}", etcd_endpoints="http://unused:1")
        parts = broker_parts(named, Runtime(), store)
        broker = ClusterBroker(parts, Membership(parts, lambda: self.kv), self.peers)
        await broker.start()
        self.brokers[name] = broker
        self.peers.reachable[f"http://{name}"] = broker
        return broker

    async def stop(self, name: str) -> None:
        """Stop a broker gracefully. It stays reachable until it has handed over all its shards."""
        await self.brokers[name].hand_over()
        del self.peers.reachable[f"http://{name}"]
        await until(lambda: not self.peers.visits[name])
        await self.brokers.pop(name).aclose()

    async def balanced(self) -> None:
        """Wait until every shard has a leader, each broker leads its fair share, and all brokers agree on that."""
        await until(self._is_balanced)

    def _is_balanced(self) -> bool:
        led = [set(broker.shards.led()) for broker in self.brokers.values()]
        views = [broker.cluster(ANYBODY) for broker in self.brokers.values()]
        seen = all(place.leader == place.preferred and place.leader for view in views for place in view.shards)
        shares = sorted(map(len, led))
        return seen and shares[-1] - shares[0] <= 1 and set().union(*led) == set(range(QUICK.shards))


@asynccontextmanager
async def running_members(
    *stores: tuple[str, ObjectStore], settings: Settings = QUICK, kv: SharedKeyValueStore | None = None
) -> AsyncIterator[Members]:
    kv = kv or SharedKeyValueStore(Runtime())
    members = Members(kv)
    for name, store in stores:
        await members.start(name, store, settings)
    try:
        await members.balanced()
        yield members
    finally:
        for name in tuple(members.brokers):
            await members.stop(name)
        await kv.end()
