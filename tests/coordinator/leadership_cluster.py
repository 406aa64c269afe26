"""A cluster of leaderships in one process: on one key-value store, with hosts that lead logs without records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.fake_hosts import FakeHost, Logs, Told
from tests.coordinator.faulty_key_value_store import FaultyKeyValueStore
from tests.coordinator.virtual_time import LoopClock

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterIdentity, ClusterKeys, encode_value
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.coordinator.leadership.cluster_follower import LeadershipSettings
from tidelog.coordinator.leadership.leadership import Leadership
from tidelog.storage.runtime import Runtime, SeededEntropy

CLUSTER_ID = "c1"
KEYS = ClusterKeys("main")
SETTINGS = LeadershipSettings(CLUSTER_ID, lease_ttl_s=6.0, rebalance_delay_s=3.0)
STEP_S = 0.02


@dataclass
class Member:
    """One broker; `network` is its connection to the store."""

    leadership: Leadership
    host: FakeHost
    network: FaultyKeyValueStore

    @property
    def name(self) -> str:
        return self.leadership.view.me().broker_id


@dataclass
class LeadershipCluster:
    """`shards` shards on `store`. With `connect`, each member has its own connection to it. All times are those of
    `runtime`."""

    store: KeyValueStore
    runtime: Runtime
    shards: int = 12
    settings: LeadershipSettings = SETTINGS
    way_s_max: float = 0.002
    connect: Callable[[], KeyValueStore] | None = None
    logs: Logs = field(default_factory=Logs)
    members: dict[str, Member] = field(default_factory=dict)
    dead: list[Member] = field(default_factory=list)

    async def found(self) -> None:
        """Write the identity, like the first start of a broker."""
        await self.store.put(KEYS.identity, encode_value(identity()))

    async def start(self, name: str) -> Member:
        """Start a new process of the broker `name`, beside any that already runs."""
        runtime = self.runtime
        network = FaultyKeyValueStore(self.connect() if self.connect else self.store, runtime, way_s_max=self.way_s_max)
        incarnation = runtime.entropy.new_id()
        host = FakeHost(f"{name}/{incarnation[:4]}", self.logs, runtime)
        me = BrokerRecord(name, incarnation, f"http://{name}:8080", "none", "1", 0, eligible=False, stopping=False)
        leadership = Leadership(network, KEYS, host, me, lambda: range(self.shards), runtime, self.settings)
        for former in [former for former in self.logs.proofs if former.startswith(f"{name}/")]:
            del self.logs.proofs[former]  # ADR 0017 excepts two processes with the same broker id
        self.logs.proofs[host.name] = partial(_surely_leads, leadership, host)
        await leadership.start()
        if before := self.members.get(name):
            self.dead.append(before)
        member = self.members[name] = Member(leadership, host, network)
        return member

    async def start_all(self, *names: str) -> None:
        """Start brokers, and wait until the shards are spread over them."""
        for name in names:
            await self.start(name)
        await self.until(self.is_settled, 30.0)

    def kill(self, name: str) -> Member:
        """Like kill -9: nothing gets out any more; the lease expires."""
        member = self.members.pop(name)
        member.network.cut()
        member.host.crash()
        self.dead.append(member)
        return member

    async def stop(self, name: str) -> Member:
        """Like SIGTERM."""
        member = self.members.pop(name)
        await member.leadership.aclose()
        return member

    async def close(self) -> None:
        """Stop all brokers, including dead ones."""
        for member in self.members.values():
            member.network.heal()
            member.network.error_share = 0.0
        members = (*self.dead, *self.members.values())
        await asyncio.gather(*(member.leadership.aclose() for member in members))
        assert not self.logs.violations, self.logs.violations[:3]

    # ---- what is so

    def leaders(self) -> dict[int, str]:
        """By shard, the broker whose commits would succeed."""
        return {
            shard: member.name
            for shard in range(self.shards)
            for member in self.members.values()
            if member.host.commits(shard)
        }

    def loads(self) -> dict[str, int]:
        """The number of shards that each broker leads."""
        leaders = list(self.leaders().values())
        return {name: leaders.count(name) for name in self.members}

    def is_settled(self) -> bool:
        """Whether every shard has a leader, shards are spread fairly, and every broker knows the leaders."""
        leaders = self.leaders()
        loads = self.loads().values()
        return (
            len(leaders) == self.shards
            and max(loads) - min(loads) <= 1
            and all(
                {shard: record.broker_id for shard, record in member.leadership.view.leaders().items()} == leaders
                for member in self.members.values()
            )
        )

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> float:
        """Wait for `condition`; return how long it took."""
        clock = self.runtime.clock
        begin_s = clock.monotonic()
        while not condition():
            assert clock.monotonic() - begin_s < timeout_s, f"not within {timeout_s} s; {self.describe()}"
            await clock.sleep(STEP_S)
        return clock.monotonic() - begin_s

    def describe(self) -> str:
        return "; ".join(
            f"{member.name}: leads {dict(member.host.led())}, {member.leadership.view.health()}"
            for member in self.members.values()
        )


def _surely_leads(leadership: Leadership, host: FakeHost, shard: int) -> bool:
    epoch = host.led().get(shard)
    return epoch is not None and leadership.view.surely_leads(shard, epoch)


def identity(cluster_id: str = CLUSTER_ID) -> ClusterIdentity:
    return ClusterIdentity(1, cluster_id, "main", "etcd", 12, founded=True)


@asynccontextmanager
async def founded(shards: int = 12, seed: int = 7) -> AsyncGenerator[LeadershipCluster]:
    """A cluster without brokers yet, in virtual time. At its end it is stopped and checked for violations."""
    runtime = Runtime(LoopClock(), SeededEntropy(seed))
    cluster = LeadershipCluster(EmbeddedKeyValueStore(runtime), runtime, shards)
    await cluster.found()
    try:
        yield cluster
    finally:
        await cluster.close()


async def recover(cluster: LeadershipCluster) -> None:
    """Like `tidelog cluster recover`: the logs' epochs first, the identity last."""
    for shard in range(cluster.shards):
        if epoch := cluster.logs.epochs[shard]:
            await cluster.store.put(KEYS.epoch(shard), b"%d" % epoch)
    await cluster.store.put(KEYS.identity, encode_value(identity()))


def handovers_s(history: list[Told]) -> list[float]:
    """The times from each release to the next lead of the shard."""
    released = {told.shard: told.at_s for told in history if told.what == "release"}
    gaps = [told.at_s - released[told.shard] for told in history if told.what == "lead" and told.shard in released]
    assert gaps, "something was handed over"
    return gaps
