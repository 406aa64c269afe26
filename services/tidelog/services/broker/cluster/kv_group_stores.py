"""The groups of a cluster, in the key-value store: `GroupStores` for a broker that has joined."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys, LeaderRecord
from tidelog.coordinator.groups.etcd_group_store import EtcdGroupStore
from tidelog.coordinator.groups.group_store import GroupStore, HeadPage
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.coordinator.leadership.shard_host import ClusterView

NO_EPOCH = 0
"""Epochs begin at 1, so a store of this epoch can read, and all its writes would be fenced."""


class KvGroupStores:
    """`shards`: the cluster's number of shards now."""

    def __init__(self, kv: KeyValueStore, keys: ClusterKeys, view: ClusterView, shards: Callable[[], int]) -> None:
        self._kv = kv
        self._keys = keys
        self._view = view
        self._shards = shards

    def of(self, shard: int, epoch: int) -> GroupStore:
        me = self._view.me()
        leader = LeaderRecord(me.broker_id, me.incarnation, epoch)
        return EtcdGroupStore(self._kv, self._keys, shard, leader, self._shards())

    async def heads(self, after: str, limit: int) -> HeadPage:
        return await self.of(0, NO_EPOCH).heads(after, limit)

    def reachable(self) -> bool:
        health = self._view.health()
        return health.reachable and health.trusted

    async def aclose(self) -> None:
        """Does nothing: `Membership` closes the key-value store."""
