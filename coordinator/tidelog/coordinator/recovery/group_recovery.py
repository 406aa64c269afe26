"""Writes groups and committed offsets to etcd again, from their copies in the bucket (inv. 9).

- **etcd has no identity of the cluster** (wiped, replaced, or the bucket is bound to it): all copied groups are
  written. No broker writes groups meanwhile: `EtcdGroupStore` compares the identity, which recovery writes last.
- **etcd has an identity, but an epoch is below the log's** (restored to an older state): the offsets whose commit is
  newer in the copy are written, and the groups that are missing.
- **Neither**: etcd's groups are the truth; nothing is written.

Members are not copied. The heads are written as those of groups without members since now, so that offsets expire
a whole `offsets.retention.ms` later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.groups.copied_groups import GroupCopy, committed_ms, copied_groups
from tidelog.coordinator.groups.etcd_group_store import cut
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.stored import HEADS, PARTS, StoredHead, group_of, is_offset
from tidelog.coordinator.kv.key_value import KeyValueStore, PutKey, read_prefix
from tidelog.storage.errors import Corrupt
from tidelog.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class GroupRecovery:
    """The numbers of `groups` and `offsets` to write."""

    groups: int = 0
    offsets: int = 0


async def plan_group_recovery(
    bucket: ObjectStore, kv: KeyValueStore, keys: ClusterKeys, *, shards: int, now_ms: int
) -> GroupRecovery:
    """How much is to be written in a cluster of `shards` shards. Raises `Corrupt`, `Unavailable`."""
    changes = await _changes(bucket, kv, keys, shards, now_ms)
    return GroupRecovery(
        len({group_of(change.key) for change in changes}), sum(is_offset(each.key) for each in changes)
    )


async def recover_groups(
    bucket: ObjectStore, kv: KeyValueStore, keys: ClusterKeys, *, shards: int, now_ms: int
) -> None:
    """Write the groups; safe to repeat. Raises `Corrupt`, `Unavailable`."""
    for transaction in cut(await _changes(bucket, kv, keys, shards, now_ms)):
        await kv.transact((), [PutKey(keys.groups + each.key, each.value) for each in _puts(transaction)])


async def _changes(
    bucket: ObjectStore, kv: KeyValueStore, keys: ClusterKeys, shards: int, now_ms: int
) -> Sequence[Change]:
    copies = await copied_groups(bucket, shards)
    if not copies:
        return ()
    stored: dict[str, bytes] = {}
    for prefix in (keys.groups + HEADS, keys.groups + PARTS):
        items, _ = await read_prefix(kv, prefix)
        stored |= {item.key.removeprefix(keys.groups): item.value for item in items}
    return [change for copy in copies.values() for change in missing_in(copy, stored, now_ms)]


def missing_in(copy: GroupCopy, stored: Mapping[str, bytes], now_ms: int) -> Sequence[Change]:
    """The keys of `copy` that are not in `stored`, or in an older commit. The head comes last."""
    offsets = sorted(key for key in copy if is_offset(key))
    changes: list[Change] = [PutKey(key, copy[key]) for key in offsets if _is_newer(key, copy[key], stored.get(key))]
    heads = [key for key in copy if not is_offset(key) and key not in stored]
    return [*changes, *(PutKey(key, _without_members(key, copy[key], now_ms)) for key in heads)]


def _is_newer(key: str, copied: bytes, stored: bytes | None) -> bool:
    return stored is None or committed_ms(key, copied) > committed_ms(key, stored)


def _without_members(key: str, head: bytes, now_ms: int) -> bytes:
    try:
        found = msgspec.msgpack.decode(head, type=StoredHead)
    except msgspec.MsgspecError as error:
        raise Corrupt(key, f"is no head of a group: {error}") from error
    emptied_at_ms = found.emptied_at_ms or now_ms
    return msgspec.msgpack.encode(msgspec.structs.replace(found, emptied_at_ms=emptied_at_ms))


def _puts(changes: Sequence[Change]) -> Sequence[PutKey]:
    return [change for change in changes if isinstance(change, PutKey)]
