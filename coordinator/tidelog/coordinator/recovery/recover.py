"""Writes a cluster's keys again from the bucket after etcd was wiped, restored to an older state, or replaced.

    plan = await plan_recovery(bucket, journal, kv, keys, shards=settings.shards)     # reads only
    await apply_recovery(plan, bucket, journal, kv, keys, runtime)

No key in etcd is the truth about records (`cluster_keys`), so each can be restored from elsewhere:

    identity     from the journal, which names the bucket's owner
    epochs/<s>   the highest epoch in the shard's write-ahead log: its last entry's header, or the floor's epoch
    journal      the journal's next number
    leaders/<s>  keys without a lease of processes that are gone are deleted
    peer-secret  a new one if it is missing; brokers accept the old and the new one for a while
    groups       heads and committed offsets, from their copies in the bucket (`group_recovery`)
    the rest     brokers register and lead again by themselves

The restored epoch is exactly the log's. A leader that kept running finds its own epoch there and continues; a broker
that takes a shard gets a higher one. Recovery never lowers a number and writes the identity last, so brokers trust the
store only when all epochs are in it. So recovery may be interrupted, repeated, and run while brokers commit: if a
leader claims an epoch after recovery has read its log, it finds its epoch above the stored one and asks for another
recovery.

Recovery also binds a bucket that a broker without etcd has used to the cluster, under the bucket's cluster id. Stop
that broker first: the cluster's leaders fence its log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import msgspec

from tidelog.coordinator.cluster.cluster_keys import FORMAT_VERSION, ClusterIdentity, ClusterKeys
from tidelog.coordinator.cluster.identity import (
    EMBEDDED,
    ETCD,
    WrongCluster,
    bucket_identity,
    ensure_peer_secret,
    named,
    store_identity,
    write_bucket_identity,
    write_store_identity,
)
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import DeleteKey, KeyValue, KeyValueStore, read_prefix, unchanged, update_key
from tidelog.coordinator.leadership.cluster_snapshot import SnapshotDecoder
from tidelog.coordinator.leadership.decisions import is_stale
from tidelog.coordinator.recovery.group_recovery import GroupRecovery, plan_group_recovery, recover_groups
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import each_of, in_order
from tidelog.storage.layout import MANIFESTS_PREFIX, WAL_PREFIX
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import WalCodec
from tidelog.storage.wal.wal_tail import find_tail

AT_ONCE_MAX = 16
"""The most logs that are read, or keys that are written, at the same time."""


@dataclass(frozen=True, slots=True)
class EpochRecovery:
    """The highest epoch of a shard in its log and in the store; 0 if there is none."""

    shard: int
    in_log: int
    in_store: int

    @property
    def rises(self) -> bool:
        """Whether recovery must raise the stored epoch."""
        return self.in_log > self.in_store


@dataclass(frozen=True, slots=True)
class StaleLeader:
    """A leader key to delete: it is under no lease, and its process is gone."""

    shard: int
    broker_id: str
    item: KeyValue


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What recovery writes. `binds`: the bucket belonged to a broker without etcd and becomes the cluster's."""

    identity: ClusterIdentity
    identity_missing: bool
    binds: bool
    peer_secret_missing: bool
    epochs: Sequence[EpochRecovery]
    journal_number: int
    journal_number_in_store: int
    groups: GroupRecovery
    stale_leaders: Sequence[StaleLeader]

    @property
    def writes_nothing(self) -> bool:
        """Whether the store is complete."""
        return not (
            self.identity_missing
            or self.binds
            or self.stale_leaders
            or self.peer_secret_missing
            or self.groups.groups
            or self.journal_number > self.journal_number_in_store
            or any(epoch.rises for epoch in self.epochs)
        )


async def plan_recovery(
    bucket: ObjectStore,
    journal: Journal,
    kv: KeyValueStore,
    keys: ClusterKeys,
    *,
    shards: int,
    runtime: Runtime,
    codec: WalCodec | None = None,
) -> RecoveryPlan:
    """Read the bucket and the store. `shards` is used if the bucket has no identity. Raises `WrongCluster` if either
    belongs to another cluster, `NotFound` if the bucket was never used, `Corrupt`, `Unavailable`."""
    await journal.catch_up()
    stored = await store_identity(kv, keys)
    in_bucket = [shard for prefix in (WAL_PREFIX, MANIFESTS_PREFIX) async for shard in _shards_in(bucket, prefix)]
    owner = bucket_identity(journal)
    if owner is None and not in_bucket and journal.next_number == 0:
        raise NotFound("the bucket is empty: there is nothing to recover, start a broker")
    _refuse_other_cluster(owner, stored, keys)
    known = owner or ClusterIdentity(FORMAT_VERSION, runtime.entropy.new_id(), keys.name, EMBEDDED, shards, True)
    used = [1 + max(topic.shards) for topic in Catalog(journal, runtime).list_topics()]
    count = max([known.shards, *used, *(shard + 1 for shard in in_bucket), stored.shards if stored else 0])
    epochs = await _epochs(bucket, kv, keys, count, runtime, codec or ParquetWalCodec())
    groups = GroupRecovery()
    if stored is None or any(epoch.rises for epoch in epochs):
        groups = await plan_group_recovery(bucket, kv, keys, shards=count, now_ms=runtime.clock.now_ms())
    return RecoveryPlan(
        identity=msgspec.structs.replace(known, name=keys.name, coordinator=ETCD, shards=count, founded=True),
        identity_missing=stored is None or not known.founded,
        binds=known.coordinator == EMBEDDED,
        peer_secret_missing=await kv.get(keys.peer_secret) is None,
        epochs=epochs,
        journal_number=journal.next_number,
        journal_number_in_store=_number(keys.journal, await kv.get(keys.journal)),
        groups=groups,
        stale_leaders=await _stale_leaders(kv, keys),
    )


async def apply_recovery(
    plan: RecoveryPlan, bucket: ObjectStore, journal: Journal, kv: KeyValueStore, keys: ClusterKeys, runtime: Runtime
) -> None:
    """Write `plan`, the identity last. Raises `WrongCluster` if another cluster has written meanwhile, `Unavailable`;
    after either, plan and apply again."""
    await write_bucket_identity(journal, plan.identity)
    if plan.groups.groups:  # first, since a later recovery sees by the epochs that the store is an old one
        await recover_groups(bucket, kv, keys, shards=plan.identity.shards, now_ms=runtime.clock.now_ms())
    rising = [epoch for epoch in plan.epochs if epoch.rises]
    await each_of(rising, lambda epoch: _raise_to(kv, keys.epoch(epoch.shard), epoch.in_log), at_once=AT_ONCE_MAX)
    for stale in plan.stale_leaders:  # unless it was written since
        await kv.transact([unchanged(stale.item)], [DeleteKey(stale.item.key)])
    await _raise_to(kv, keys.journal, max(plan.journal_number, journal.next_number))
    await ensure_peer_secret(kv, keys, runtime.entropy)
    await write_store_identity(kv, keys, plan.identity)


def _refuse_other_cluster(owner: ClusterIdentity | None, stored: ClusterIdentity | None, keys: ClusterKeys) -> None:
    if owner is not None and owner.coordinator != EMBEDDED and owner.name != keys.name:
        raise WrongCluster(f"the bucket belongs to {named(owner)}: set cluster.name={owner.name}")
    if stored is not None and (owner is None or stored.cluster_id != owner.cluster_id):
        raise WrongCluster(
            f"etcd has {named(stored)}, and the bucket belongs to {named(owner) if owner else 'nobody'}: nothing is "
            "written over another cluster; check `store`, etcd.endpoints and cluster.name"
        )


async def _shards_in(bucket: ObjectStore, prefix: str) -> AsyncIterator[int]:
    """The shards that have an object under `prefix`, ascending; one request for each."""
    after = prefix
    while page := await bucket.list(prefix, start_after=after, limit=1):
        name = page[0].key.removeprefix(prefix).partition("/")[0]
        if not name.isdigit():
            raise Corrupt(page[0].key, "is not the name of an object of a shard")
        yield int(name)
        after = f"{prefix}{name}0"  # "0" is the character behind "/": after all objects of this shard


async def _epochs(
    bucket: ObjectStore, kv: KeyValueStore, keys: ClusterKeys, shards: int, runtime: Runtime, codec: WalCodec
) -> Sequence[EpochRecovery]:
    async def read(shard: int) -> EpochRecovery:
        tail = await find_tail(Wal(bucket, shard, codec, ShardLog(bucket, shard, runtime)))
        return EpochRecovery(shard, tail.epoch, in_store.get(keys.epoch(shard), 0))

    in_store = {item.key: _number(item.key, item) for item in (await read_prefix(kv, keys.epochs))[0]}
    return [epoch async for _, epoch in in_order(range(shards), read, at_once=AT_ONCE_MAX)]


async def _stale_leaders(kv: KeyValueStore, keys: ClusterKeys) -> Sequence[StaleLeader]:
    items, revision = await read_prefix(kv, keys.root)
    snapshot = SnapshotDecoder(keys).snapshot({item.key: item for item in items}, revision)
    return [
        StaleLeader(shard, led.record.broker_id, led.item)
        for shard, led in sorted(snapshot.leaders.items())
        if is_stale(led, snapshot.brokers)
    ]


async def _raise_to(kv: KeyValueStore, key: str, number: int) -> None:
    """Set `key` to `number` unless it holds a higher one."""
    await update_key(kv, key, lambda item: b"%d" % number if _number(key, item) < number else None)


def _number(key: str, item: KeyValue | None) -> int:
    if item is None:
        return 0
    if not item.value.isdigit():
        raise Corrupt(key, f"holds {item.value[:40]!r}, not a number: delete the key, then recover again")
    return int(item.value)
