"""Writes a cluster's keys again from the bucket alone, after etcd was wiped, put back to an older state, or replaced.

    plan = await plan_recovery(bucket, journal, kv, keys, shards=settings.shards)     # reads only
    await apply_recovery(plan, journal, kv, keys, runtime.entropy)

What a cluster keeps in etcd is no truth about records (`cluster_keys`), so all of it can be had from elsewhere:

    identity     the journal names the bucket's owner
    epochs/<s>   the highest epoch in the shard's write-ahead log: its last entry's header, or the floor's epoch
    journal      the journal's next number
    leaders/<s>  those of processes that are gone, under no lease, are deleted (`stale_leaders`)
    peer-secret  a new one, if it is missing: brokers accept the old one and the new one for a while
    the rest     brokers register and lead again by themselves

The epoch is exactly the log's. A leader that ran on through the loss finds its own there and goes on with it; whoever
takes a shard gets a higher one. Nothing is ever lowered, and the identity comes last, so that brokers trust the store
only once every epoch is in it. Hence recovery may be cut off, run twice, and run while brokers commit: a leader that
claimed an epoch after its log was read is above what was written, finds it so, and asks for another recovery.

A bucket that a broker without etcd used so far becomes the cluster's, under the id it has. That broker must have been
stopped; its log would be fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidelog.coordinator.cluster.cluster_keys import FORMAT_VERSION, ClusterIdentity, ClusterKeys
from tidelog.coordinator.cluster.identity import (
    EMBEDDED,
    ETCD,
    WrongCluster,
    bucket_identity,
    named,
    stored_identity,
    write_bucket_identity,
    write_store_identity,
)
from tidelog.coordinator.cluster.peer_secret import found_peer_secret
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import KeyValue, KeyValueStore, PutKey, absent, unchanged
from tidelog.coordinator.leadership.stale_leaders import StaleLeader, delete_stale_leader, find_stale_leaders
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import WAL_PREFIX
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Entropy, Runtime
from tidelog.storage.wal import Wal
from tidelog.storage.wal_codec import ParquetWalCodec
from tidelog.storage.wal_entry import WalCodec
from tidelog.storage.wal_tail import find_tail

AT_ONCE_MAX = 16
"""Logs read, or keys written, at the same time."""

_Argument = TypeVar("_Argument")
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class EpochRecovery:
    """A shard's highest epoch in its log and in the store; 0 where there is none."""

    shard: int
    in_log: int
    in_store: int

    @property
    def rises(self) -> bool:
        """Whether the store has to be told."""
        return self.in_log > self.in_store


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What recovery writes. `binds`: the bucket was a broker's without etcd, and becomes the cluster's.
    `stale_leaders`: keys to delete."""

    identity: ClusterIdentity
    identity_missing: bool
    binds: bool
    peer_secret_missing: bool
    epochs: Sequence[EpochRecovery]
    journal_number: int
    journal_number_in_store: int
    stale_leaders: Sequence[StaleLeader]

    @property
    def writes_nothing(self) -> bool:
        """The store has all of it already."""
        return not (
            self.identity_missing
            or self.binds
            or self.stale_leaders
            or self.peer_secret_missing
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
    """Read the bucket and the store; `shards` counts for a bucket that has no identity. Raises `WrongCluster` if either
    is another cluster's, `NotFound` for a bucket that was never used, `Corrupt`, `Unavailable`."""
    await journal.catch_up()
    stored = await stored_identity(kv, keys)
    in_bucket = [shard async for shard in _shards_in(bucket)]
    owner = bucket_identity(journal)
    if owner is None and not in_bucket and journal.next_number == 0:
        raise NotFound("the bucket is empty: there is nothing to recover, start a broker")
    _refuse_other_cluster(owner, stored.identity if stored else None, keys)
    known = owner or ClusterIdentity(FORMAT_VERSION, runtime.entropy.new_id(), keys.name, EMBEDDED, shards, True)
    used = [1 + max(topic.shards) for topic in Catalog(journal, runtime).list_topics()]
    count = max([known.shards, *used, *(shard + 1 for shard in in_bucket), stored.identity.shards if stored else 0])
    epochs = await _epochs(bucket, kv, keys, count, codec or ParquetWalCodec())
    return RecoveryPlan(
        identity=ClusterIdentity(FORMAT_VERSION, known.cluster_id, keys.name, ETCD, count, founded=True),
        identity_missing=stored is None or not known.founded,
        binds=known.coordinator == EMBEDDED,
        peer_secret_missing=await kv.get(keys.peer_secret) is None,
        epochs=epochs,
        journal_number=journal.next_number,
        journal_number_in_store=_number(keys.journal, await kv.get(keys.journal)),
        stale_leaders=await find_stale_leaders(kv, keys),
    )


async def apply_recovery(
    plan: RecoveryPlan, journal: Journal, kv: KeyValueStore, keys: ClusterKeys, entropy: Entropy
) -> None:
    """Write what `plan` says, the identity last. Raises `WrongCluster` if another cluster came first, `Unavailable`;
    then plan and apply again."""
    await write_bucket_identity(journal, plan.identity)
    rising = [epoch for epoch in plan.epochs if epoch.rises]
    await _each(rising, lambda epoch: _raise_to(kv, keys.epoch(epoch.shard), epoch.in_log))
    await _each(plan.stale_leaders, lambda stale: delete_stale_leader(kv, keys, stale))
    await _raise_to(kv, keys.journal, max(plan.journal_number, journal.next_number))
    await found_peer_secret(kv, keys, entropy)
    await write_store_identity(kv, keys, plan.identity)


def _refuse_other_cluster(owner: ClusterIdentity | None, stored: ClusterIdentity | None, keys: ClusterKeys) -> None:
    if owner is not None and owner.coordinator != EMBEDDED and owner.name != keys.name:
        raise WrongCluster(f"the bucket belongs to {named(owner)}: set cluster.name={owner.name}")
    if stored is not None and (owner is None or stored.cluster_id != owner.cluster_id):
        raise WrongCluster(
            f"etcd has {named(stored)}, and the bucket belongs to {named(owner) if owner else 'nobody'}: nothing is "
            "written over another cluster; check `store`, etcd.endpoints and cluster.name"
        )


async def _shards_in(bucket: ObjectStore) -> AsyncIterator[int]:
    """The shards that have any object, ascending; a request each."""
    after = WAL_PREFIX
    while page := await bucket.list(WAL_PREFIX, start_after=after, limit=1):
        name = page[0].key.removeprefix(WAL_PREFIX).partition("/")[0]
        if not name.isdigit():
            raise Corrupt(page[0].key, "is not the name of an object of a write-ahead log")
        yield int(name)
        after = f"{WAL_PREFIX}{name}0"  # "0" is the character behind "/": past all of this shard's objects


async def _epochs(
    bucket: ObjectStore, kv: KeyValueStore, keys: ClusterKeys, shards: int, codec: WalCodec
) -> Sequence[EpochRecovery]:
    async def read(shard: int) -> EpochRecovery:
        tail = await find_tail(Wal(bucket, shard, codec))
        return EpochRecovery(shard, tail.epoch, in_store.get(keys.epoch(shard), 0))

    in_store = await _numbers(kv, keys.epochs)
    return await _each(range(shards), read)


async def _numbers(kv: KeyValueStore, prefix: str) -> Mapping[str, int]:
    """The numbers under `prefix`, as of one revision."""
    page = await kv.range(prefix)
    items = list(page.items)
    while page.more:
        page = await kv.range(prefix, after=items[-1].key, revision=page.revision)
        items += page.items
    return {item.key: _number(item.key, item) for item in items}


async def _raise_to(kv: KeyValueStore, key: str, number: int) -> None:
    """Have `key` hold `number` or more."""
    while True:
        item = await kv.get(key)
        if _number(key, item) >= number:
            return
        compare = unchanged(item) if item else absent(key)
        if (await kv.transact([compare], [PutKey(key, b"%d" % number)])).succeeded:
            return


def _number(key: str, item: KeyValue | None) -> int:
    if item is None:
        return 0
    if not item.value.isdigit():
        raise Corrupt(key, f"holds {item.value[:40]!r}, not a number: delete the key, then recover again")
    return int(item.value)


async def _each(arguments: Sequence[_Argument], work: Callable[[_Argument], Awaitable[_Found]]) -> Sequence[_Found]:
    """`work` on each, `AT_ONCE_MAX` at a time."""
    room = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(argument: _Argument) -> _Found:
        async with room:
            return await work(argument)

    return await asyncio.gather(*(one(argument) for argument in arguments))
