"""Stores the groups of one shard in the key-value store, for one leadership of the shard.

A write is cut into transactions (`group_transactions`). Each transaction compares:

    the leader key of the shard    still holds this leadership (broker, incarnation, epoch)
    the cluster's identity         is unchanged: so is the number of shards, hence the groups of this shard
    `group_writes` of the shard    is at the revision of the last transaction; each transaction also writes it

- So a leader that was paused, or whose shard moved, gets `Fenced` and changes nothing more.
- A transaction whose answer was lost may be applied seconds later. The compare with `group_writes` refuses it once a
  later write was applied, so that it never brings an old offset back.
- If the leader key is missing (its lease ended, or etcd was wiped), no other broker coordinates the groups. The caller
  gets `Unavailable` and may write again: leadership puts the key again, or `recover` restores it.
- The changes of one group in one write are atomic: they are in one transaction, or in a `redo_record` before they are
  applied. Records that an earlier leadership left are completed first. They are read before the first transaction of
  this one, and again if that finds that another transaction was applied meanwhile. After it no more of them can come.
- After `Unavailable`, the next write first applies the rest of the failed one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tidelog.coordinator.cluster.cluster_keys import (
    ClusterIdentity,
    ClusterKeys,
    LeaderRecord,
    decode_value,
    encode_value,
)
from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import GroupStore, HeadPage
from tidelog.coordinator.groups.group_transactions import cut, in_pieces
from tidelog.coordinator.groups.redo_record import completed, read_records, redone
from tidelog.coordinator.groups.stored import (
    HEADS,
    REDO,
    group_of,
    head_key,
    is_copied,
    names_in,
    offsets_prefix,
    parts_prefix,
    redo_key,
)
from tidelog.coordinator.kv.key_value import (
    AtRevision,
    Compacted,
    Compare,
    DeleteKey,
    GetKey,
    HasValue,
    KeyValue,
    KeyValueStore,
    PutKey,
    TransactionResult,
    read_prefix,
)
from tidelog.storage.errors import Fenced, TidelogError, Unavailable
from tidelog.storage.in_flight import in_order


class EtcdGroupStore(GroupStore):
    """`leader`: this leadership of `shard`, as its key holds it. `shards`: their number, by which the caller knows the
    groups of this shard."""

    def __init__(self, kv: KeyValueStore, keys: ClusterKeys, shard: int, leader: LeaderRecord, shards: int) -> None:
        self._kv = kv
        self._keys = keys
        self._shard = shard
        self._leader_value = encode_value(leader)
        self._shards = shards
        self._identity_value: bytes | None = None
        self._last_write = 0
        self._knows_records = False
        self._began = False
        """Whether a transaction of this leadership was applied."""
        self._left: deque[Sequence[Change]] = deque()
        """The transactions of the last write that are not applied yet, or whose outcome is unknown."""
        self._left_of: Sequence[Change] = ()
        self._writing = asyncio.Lock()

    async def load(self, group: str) -> Mapping[str, bytes]:
        """As the protocol says, at one revision at which etcd had the cluster's identity. Without it etcd was wiped and
        shows every group as empty; `recover` writes the identity last."""
        keys = (self._keys.identity, self._keys.groups + head_key(group), self._keys.groups + redo_key(group))
        first = await self._kv.transact((), [GetKey(key) for key in keys])
        identity, head, record = first.found
        if identity is None:
            raise Unavailable(self._missing(identity))
        try:
            parts, _ = await read_prefix(self._kv, self._keys.groups + parts_prefix(group), first.revision)
            found = self._without_prefix([*([head] if head else []), *parts])
            if record is None:
                return found
            return redone(found, (await self._records(lambda name: name == group, first.revision))[group])
        except Compacted as error:
            raise Unavailable(f"etcd dropped the revision, or was wiped, while {group} was read: {error}") from error

    async def write(self, changes: Sequence[Change]) -> None:
        async with self._writing:
            if not self._knows_records:
                await self._take_over()
            repeated = bool(self._left) and list(changes) == list(self._left_of)
            await self._apply_left()
            if not repeated:
                self._left_of = changes
                self._left.extend(cut(changes))
                await self._apply_left()

    async def heads(self, after: str, limit: int) -> HeadPage:
        prefix = self._keys.groups + HEADS
        last = self._keys.groups + head_key(after) if after else None
        page = await self._kv.range(prefix, limit=limit, after=last)
        return HeadPage({names_in(item.key, prefix)[0]: item.value for item in page.items}, page.more)

    async def copied_keys(self, owns: Callable[[str], bool]) -> Mapping[str, bytes] | None:
        """The heads and offsets of all groups that `owns` says are of this shard, as they were at a moment when this
        leadership held; None if no group was ever stored. Raises as `write`, and `Unavailable` if the read took too
        long."""
        result = await self._kv.transact((), [GetKey(key) for key in self._fence])
        self._learn(result)
        try:
            found = await self._own_heads(owns, result.revision)
            if not found and not self._last_write:
                return None
            groups = [group_of(key) for key in found]
            async for _, offsets in in_order(groups, lambda group: self._offsets(group, result.revision), at_once=8):
                found |= offsets
            for changes in (await self._records(owns, result.revision)).values():
                found = redone(found, [change for change in changes if is_copied(change.key)])
            return found
        except Compacted as error:
            raise Unavailable(f"etcd dropped the revision while its groups were read: {error}") from error

    async def _own_heads(self, owns: Callable[[str], bool], revision: int) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        page = await self._kv.range(self._keys.groups + HEADS, revision=revision)
        while page.items:
            heads = self._without_prefix(page.items)
            found |= {key: value for key, value in heads.items() if owns(group_of(key))}
            if not page.more:
                break
            last = page.items[-1].key
            page = await self._kv.range(self._keys.groups + HEADS, after=last, revision=revision)
        return found

    async def _offsets(self, group: str, revision: int) -> Mapping[str, bytes]:
        items, _ = await read_prefix(self._kv, self._keys.groups + offsets_prefix(group), revision)
        return self._without_prefix(items)

    async def _records(
        self, owns: Callable[[str], bool], revision: int | None = None
    ) -> Mapping[str, Sequence[Change]]:
        """The valid records of the groups that `owns` accepts, by group. There are few: of writes that did not end."""
        items, _ = await read_prefix(self._kv, self._keys.groups + REDO, revision)
        return read_records(self._without_prefix(items), owns)

    async def _take_over(self) -> None:
        """Complete the records that earlier leaderships left, before all else."""
        self._learn(await self._kv.transact((), [GetKey(key) for key in self._fence]))
        records = await self._records(lambda group: shard_of_group(group, self._shards) == self._shard)
        for group, changes in records.items():
            self._left.extendleft(reversed(list(in_pieces(completed(group, changes)))))
        self._knows_records = True

    async def _apply_left(self) -> None:
        """A transaction is tried again if an earlier one, whose answer was lost, was applied meanwhile; there is at
        most one of these for each lost answer."""
        while self._left:
            if await self._applied(self._left[0]):
                self._left.popleft()
                self._began = True
            elif not self._began:
                await self._take_over()

    async def _applied(self, changes: Sequence[Change]) -> bool:
        """Apply `changes` in one transaction; False if the last write was not the one that is known here."""
        operations = [*(self._with_prefix(change) for change in changes), PutKey(self._writes_key, self._leader_value)]
        result = await self._kv.transact(self._compares(), operations, [GetKey(key) for key in self._fence])
        if result.succeeded:
            self._last_write = result.revision
        else:
            self._learn(result)
        return result.succeeded

    def _compares(self) -> Sequence[Compare]:
        assert self._identity_value is not None, "learned by `_take_over`"
        leader, identity, writes = self._fence
        return (
            HasValue(leader, self._leader_value),
            HasValue(identity, self._identity_value),
            AtRevision(writes, self._last_write),
        )

    def _learn(self, result: TransactionResult) -> None:
        """Take the identity and the revision of the last write from `result`, or raise why this store must not
        write."""
        leader, identity, writes = result.found
        if leader is None or identity is None:
            raise Unavailable(self._missing(identity))
        if leader.value != self._leader_value:
            raise Fenced(f"another broker coordinates the groups of shard {self._shard}; nothing more was applied")
        if refusal := self._other_shards(identity):
            raise refusal
        self._identity_value = identity.value
        self._last_write = writes.mod_revision if writes else 0

    def _missing(self, identity: KeyValue | None) -> str:
        if identity is None:
            return "etcd knows nothing of this cluster: it was wiped. Run `tidelog cluster recover`; groups wait for it"
        return f"etcd has no leader of shard {self._shard} at this moment; nothing was applied, try again"

    def _other_shards(self, identity: KeyValue) -> TidelogError | None:
        shards = decode_value(self._keys.identity, identity.value, ClusterIdentity).shards
        if shards == self._shards:
            return None
        return Fenced(
            f"the cluster has {shards} shards now, not {self._shards}: other shards coordinate some of the groups of "
            f"shard {self._shard}; nothing more was applied"
        )

    @property
    def _fence(self) -> tuple[str, str, str]:
        return self._keys.leader(self._shard), self._keys.identity, self._writes_key

    @property
    def _writes_key(self) -> str:
        return self._keys.group_writes(self._shard)

    def _with_prefix(self, change: Change) -> Change:
        key = self._keys.groups + change.key
        return PutKey(key, change.value) if isinstance(change, PutKey) else DeleteKey(key)

    def _without_prefix(self, items: Sequence[KeyValue]) -> Mapping[str, bytes]:
        return {item.key.removeprefix(self._keys.groups): item.value for item in items}
