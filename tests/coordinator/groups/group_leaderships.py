"""A cluster's keys as groups see them: an identity, and a shard whose leadership moves on."""

from __future__ import annotations

from tidelog.coordinator.cluster.cluster_keys import ClusterIdentity, ClusterKeys, LeaderRecord, encode_value
from tidelog.coordinator.groups.etcd_group_store import EtcdGroupStore
from tidelog.coordinator.kv.key_value import KeyValueStore

SHARD = 3
SHARDS = 8


class Leaderships:
    """`keys` of a cluster in `kv`. `next_store`: a store for a new leadership of `SHARD`, over `through` if given."""

    def __init__(self, kv: KeyValueStore, name: str) -> None:
        self.kv = kv
        self.keys = ClusterKeys(name)
        self.epoch = 0

    async def found(self, shards: int = SHARDS) -> None:
        identity = ClusterIdentity(1, "c" * 32, self.keys.name, "etcd", shards, founded=True)
        await self.kv.put(self.keys.identity, encode_value(identity))

    @property
    def record(self) -> LeaderRecord:
        return LeaderRecord(f"broker-{self.epoch}", f"incarnation-{self.epoch}", self.epoch)

    async def lead(self) -> None:
        """Put the present leadership's key."""
        await self.kv.put(self.keys.leader(SHARD), encode_value(self.record))

    async def next_store(self, through: KeyValueStore | None = None) -> EtcdGroupStore:
        self.epoch += 1
        await self.lead()
        return EtcdGroupStore(through or self.kv, self.keys, SHARD, self.record, SHARDS)
