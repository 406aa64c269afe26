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
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_transactions import cut, in_pieces
from tidelog.coordinator.groups.redo_record import completed, read_records, redone
from tidelog.coordinator.groups.stored import HEADS, PARTS, REDO, StoredHead, group_of, is_offset
from tidelog.coordinator.kv.key_value import DeleteKey, KeyValueStore, Operation, PutKey, read_prefix
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
    changes = (await _missing(bucket, kv, keys, shards, now_ms)).changes
    return GroupRecovery(
        len({group_of(change.key) for change in changes}), sum(is_offset(each.key) for each in changes)
    )


async def recover_groups(
    bucket: ObjectStore, kv: KeyValueStore, keys: ClusterKeys, *, shards: int, now_ms: int
) -> None:
    """Write the groups; safe to repeat. Raises `Corrupt`, `Unavailable`."""
    missing = await _missing(bucket, kv, keys, shards, now_ms)
    for transaction in (*in_pieces(missing.unfinished), *cut(missing.changes)):
        await kv.transact((), [_operation(keys, each) for each in transaction])


@dataclass(frozen=True, slots=True)
class _Missing:
    """`unfinished`: changes of redo records in etcd, to be completed first: a record would hide what is written
    after it. `changes`: what etcd lacks."""

    unfinished: Sequence[Change] = ()
    changes: Sequence[Change] = ()


async def _missing(bucket: ObjectStore, kv: KeyValueStore, keys: ClusterKeys, shards: int, now_ms: int) -> _Missing:
    copies = await copied_groups(bucket, shards)
    if not copies:
        return _Missing()
    stored: dict[str, bytes] = {}
    for prefix in (keys.groups + HEADS, keys.groups + PARTS, keys.groups + REDO):
        items, _ = await read_prefix(kv, prefix)
        stored |= {item.key.removeprefix(keys.groups): item.value for item in items}
    records = read_records({key: value for key, value in stored.items() if key.startswith(REDO)}, copies.__contains__)
    unfinished = [change for group, record in records.items() for change in completed(group, record)]
    stored = redone(stored, unfinished)
    return _Missing(unfinished, [change for copy in copies.values() for change in missing_in(copy, stored, now_ms)])


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


def _operation(keys: ClusterKeys, change: Change) -> Operation:
    key = keys.groups + change.key
    return PutKey(key, change.value) if isinstance(change, PutKey) else DeleteKey(key)
