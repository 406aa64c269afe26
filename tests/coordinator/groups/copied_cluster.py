"""A cluster whose groups are copied to the bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.groups.group_leaderships import SHARD, SHARDS, Leaderships
from tests.coordinator.virtual_time import LoopClock

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.groups.copied_groups import copied_groups
from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.offset_copies import CopiedGroupStore, OffsetCopies
from tidelog.coordinator.groups.stored import StoredHead, StoredOffset, head_key, offset_key
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.coordinator.recovery.group_recovery import recover_groups
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

GRACE_S = 60.0


MINE = [name for name in (f"g{number}" for number in range(200)) if shard_of_group(name, SHARDS) == SHARD]


OTHERS = [name for name in (f"g{number}" for number in range(200)) if shard_of_group(name, SHARDS) != SHARD]


GROUP = MINE[0]


OFFSET = offset_key(GROUP, "web", 0)


def committed(group: str, offset: int, at_ms: int | None = None) -> Sequence[Change]:
    stored = StoredOffset("t" * 32, offset, at_ms if at_ms is not None else offset)
    return [
        PutKey(head_key(group), msgspec.msgpack.encode(StoredHead(kind="consumer", epoch=offset))),
        PutKey(offset_key(group, "web", 0), msgspec.msgpack.encode(stored)),
    ]


def offset_in(keys: Mapping[str, bytes], group: str = GROUP) -> int:
    """-1 if there is none."""
    value = keys.get(offset_key(group, "web", 0))
    return -1 if value is None else msgspec.msgpack.decode(value, type=StoredOffset).offset


class Cluster:
    """A cluster's keys and bucket; leaderships of one shard, each with its store and copies."""

    def __init__(self) -> None:
        self.bucket = MemoryObjectStore()
        self.runtime = Runtime(LoopClock(), SeededEntropy(3))
        self.kv = EmbeddedKeyValueStore(self.runtime)
        self.leaderships = Leaderships(self.kv, "main")

    async def lead(self, bucket: ObjectStore | None = None) -> tuple[GroupStore, OffsetCopies]:
        store = await self.leaderships.next_store()
        copies = OffsetCopies(
            store,
            bucket or self.bucket,
            SHARD,
            self.leaderships.epoch,
            shards=SHARDS,
            owns=lambda group: shard_of_group(group, SHARDS) == SHARD,
            runtime=self.runtime,
            grace_s=GRACE_S,
        )
        return CopiedGroupStore(store, copies), copies

    async def copied(self, group: str = GROUP) -> Mapping[str, bytes]:
        return (await copied_groups(self.bucket, SHARDS)).get(group, {})

    async def wipe(self) -> None:
        for prefix in (self.leaderships.keys.root, self.leaderships.keys.groups):
            for item in (await self.kv.range(prefix)).items:
                await self.kv.delete(item.key)

    async def recover(self) -> None:
        keys: ClusterKeys = self.leaderships.keys
        await recover_groups(self.bucket, self.kv, keys, shards=SHARDS, now_ms=5_000_000)
        await self.leaderships.found()
