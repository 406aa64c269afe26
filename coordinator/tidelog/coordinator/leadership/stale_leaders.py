"""Leader keys that no lease ends, of processes that are gone.

A leader's key is put under its lease, so that it goes when the leader does. A key without a lease stays for ever, and
its shard would wait for a process that never comes back. Older versions could write one, and so can an operator.

- Leadership takes such a shard as one that nobody leads. The transaction compares the key's revision, so it replaces
  only the key that was looked at.
- `tidelog cluster recover` deletes such keys, by the same comparison.

A registered process that leads the shard puts its key under its lease by itself (`Reassert`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys
from tidelog.coordinator.kv.key_value import Compare, DeleteKey, Field, KeyValueStore
from tidelog.coordinator.leadership.cluster_picture import Led, PictureReader
from tidelog.coordinator.leadership.mirror import read_prefix


@dataclass(frozen=True, slots=True)
class StaleLeader:
    """The key of `shard` names a process of `broker_id` that is gone, as of `mod_revision`."""

    shard: int
    broker_id: str
    mod_revision: int


def is_stale(led: Led, brokers: Mapping[str, BrokerRecord]) -> bool:
    """Whether the key of `led` is under no lease and its process is not among `brokers`, which live."""
    if led.item.lease_id:
        return False
    there = brokers.get(led.record.broker_id)
    return there is None or there.incarnation != led.record.incarnation


async def find_stale_leaders(kv: KeyValueStore, keys: ClusterKeys) -> Sequence[StaleLeader]:
    """All of the cluster, as of one revision. Raises `Unavailable`, `Compacted`."""
    items, revision = await read_prefix(kv, keys.root)
    picture = PictureReader(keys).read({item.key: item for item in items}, revision)
    return [
        StaleLeader(shard, led.record.broker_id, led.item.mod_revision)
        for shard, led in sorted(picture.leaders.items())
        if is_stale(led, picture.brokers)
    ]


async def delete_stale_leader(kv: KeyValueStore, keys: ClusterKeys, stale: StaleLeader) -> None:
    """Delete the key unless it was written since. Raises `Unavailable`."""
    key = keys.leader(stale.shard)
    await kv.transact([Compare(key, Field.MOD_REVISION, stale.mod_revision)], [DeleteKey(key)])
