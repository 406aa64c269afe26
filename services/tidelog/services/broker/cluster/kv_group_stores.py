"""The groups of a cluster, in the key-value store: `GroupStores` for a broker that has joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys, LeaderRecord
from tidelog.coordinator.groups.copy_loop import CopyLoop, Leadership
from tidelog.coordinator.groups.etcd_group_store import EtcdGroupStore
from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.group_store import GroupStore, HeadPage
from tidelog.coordinator.groups.offset_copies import CopiedGroupStore, OffsetCopies
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.coordinator.leadership.shard_host import ClusterView
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

NO_EPOCH = 0
"""Epochs begin at 1, so a store of this epoch can read, and all its writes would be fenced."""


class KvGroupStores:
    """`led`: the epochs of the shards that are led here. `shards`: the cluster's number of shards now. Copies what is
    stored to `bucket`."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: ClusterKeys,
        view: ClusterView,
        led: Callable[[], Mapping[int, int]],
        shards: Callable[[], int],
        bucket: ObjectStore,
        runtime: Runtime,
        *,
        grace_s: float,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._view = view
        self._shards = shards
        self._bucket = bucket
        self._runtime = runtime
        self._grace_s = grace_s
        self._copies = CopyLoop(led, shards, self._copies_of, runtime)

    def start(self) -> None:
        """Begin to copy."""
        self._copies.start()

    def of(self, shard: int, epoch: int) -> GroupStore:
        return CopiedGroupStore(self._uncopied(shard, epoch, self._shards()), self._copies.of(shard, epoch))

    async def heads(self, after: str, limit: int) -> HeadPage:
        return await self._uncopied(0, NO_EPOCH, self._shards()).heads(after, limit)

    def reachable(self) -> bool:
        health = self._view.health()
        return health.reachable and health.trusted

    def copy_age_s(self) -> float:
        return self._copies.age_s

    async def aclose(self) -> None:
        """Copy what is not copied yet. `Membership` closes the key-value store."""
        await self._copies.close()
        await self._copies.flush()

    def _uncopied(self, shard: int, epoch: int, shards: int) -> EtcdGroupStore:
        me = self._view.me()
        leader = LeaderRecord(me.broker_id, me.incarnation, epoch)
        return EtcdGroupStore(self._kv, self._keys, shard, leader, shards)

    def _copies_of(self, leadership: Leadership) -> OffsetCopies:
        return OffsetCopies(
            self._uncopied(*leadership),
            self._bucket,
            leadership.shard,
            leadership.epoch,
            shards=leadership.shards,
            owns=lambda group: shard_of_group(group, leadership.shards) == leadership.shard,
            runtime=self._runtime,
            grace_s=self._grace_s,
        )
