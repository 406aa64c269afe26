"""Copies the heads and committed offsets of a shard's groups from etcd to the bucket, for `recover` (inv. 9).

    copies = OffsetCopies(store, journal, ...)         # for one leadership of the shard
    copies.note(changes)                               # after they were stored in etcd
    await copies.step()                                # when `due`

The journal is ``groups/<shard>/``. Members and instances are not copied: they join again.

- **The first step of a leadership** compares the journal with etcd and writes the differences: the leader before may
  have stored changes that it did not copy. Later steps write the changes that were noted: at most one entry each
  `COPY_EVERY_S`, none while nothing changes.
- **A paused leader** cannot bring old offsets back: `group_journal` says why. The journal's entries carry the epoch of
  the shard.
- **An etcd that was wiped** must not empty the journal. The first step reads etcd at one revision, at which the key of
  the leader and the identity were there; both are gone in a wiped etcd.
- **The number of shards can grow**, and then groups move to other shards. `complete_for` in a journal is the number of
  shards for which its leader has made the comparison. A reader takes a group from the journal of its shard if that is
  complete for the present number; only else it looks for the group in the other journals (`copied_groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tidelog.coordinator.groups.etcd_group_store import EtcdGroupStore
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import GroupStore, HeadPage
from tidelog.coordinator.groups.journal.group_journal import GroupJournal
from tidelog.coordinator.groups.journal.journal_compaction import JournalCompaction
from tidelog.coordinator.groups.stored import group_of, is_copied
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.storage.layout import group_copies
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.floor_trust import floor_trust_s

COPY_EVERY_S = 9.0
"""The least time between two entries. With the second between two looks of the loop, a copy is at most 10 s old."""
ENTRY_CHANGES_MAX = 5_000


class OffsetCopies:
    """The copies of one leadership of `shard` in `epoch`. `shards`: their number in this leadership. `owns`: whether a
    group is of this shard. Steps must not overlap."""

    def __init__(
        self,
        store: EtcdGroupStore,
        bucket: ObjectStore,
        shard: int,
        epoch: int,
        *,
        shards: int,
        owns: Callable[[str], bool],
        runtime: Runtime,
        grace_s: float,
    ) -> None:
        self._store = store
        self._epoch = epoch
        self._shards = shards
        self._owns = owns
        self._clock = runtime.clock
        self._journal = GroupJournal(bucket, group_copies(shard), runtime, trust_s=floor_trust_s(grace_s))
        self._compaction = JournalCompaction(self._journal, runtime, grace_s=grace_s)
        self._opened = False
        self._compared = False
        self._pending: dict[str, Change] = {}
        self._pending_since_s = 0.0
        self._copied_at_s = float("-inf")

    def note(self, changes: Sequence[Change]) -> None:
        """`changes` are stored in etcd."""
        if not self._pending:
            self._pending_since_s = self._clock.monotonic()
        self._pending |= {change.key: change for change in changes if is_copied(change.key)}

    @property
    def noted(self) -> bool:
        """Whether changes are not copied yet."""
        return bool(self._pending)

    @property
    def age_s(self) -> float:
        """For how long the oldest noted change has not been copied; 0 if all are."""
        return self._clock.monotonic() - self._pending_since_s if self._pending else 0.0

    @property
    def due(self) -> bool:
        """Whether to call `step` now."""
        waits = bool(self._pending) or not self._compared or self._compaction.due
        return waits and self._clock.monotonic() - self._copied_at_s >= COPY_EVERY_S

    async def step(self) -> None:
        """Copy what has changed. Safe to repeat after an error. Raises `Fenced` if a later leader copies, then for
        good; `Unavailable`, `Denied`, `Corrupt`."""
        self._copied_at_s = self._clock.monotonic()
        if not self._compared:
            await self._compare()
        await self.copy_noted()
        if self._compaction.due:
            await self._compaction.run()

    async def copy_noted(self) -> None:
        """Copy the noted changes, without a request to etcd. Raises as `step`."""
        if not self._pending:
            return
        await self._open()
        taken, since_s = self._pending, self._pending_since_s
        self._pending = {}
        try:
            await self._append(tuple(taken.values()))
        except BaseException:
            self._pending, self._pending_since_s = taken | self._pending, since_s
            raise

    async def _compare(self) -> None:
        """Copy what etcd has. That includes the changes that were noted before, and may be newer: after a write whose
        outcome is unknown, a noted change would bring the offset before it back."""
        noted = dict(self._pending)
        stored = await self._store.copied_keys(self._owns)
        if stored is not None:
            await self._open()
            changes = _differences(stored, self._own_copies())
            if changes or (self._journal.state.complete_for != self._shards and (stored or self._journal.state.epoch)):
                await self._append(changes, complete_for=self._shards)
            self._pending = {key: change for key, change in self._pending.items() if noted.get(key) is not change}
        self._compared = True

    async def _append(self, changes: Sequence[Change], *, complete_for: int = 0) -> None:
        """Write `changes` in one entry, or in several if there are many. Only the last one says `complete_for`."""
        pieces = [*_in_pieces(changes)] or [()]
        for piece in pieces[:-1]:
            await self._journal.append(piece)
        await self._journal.append(pieces[-1], complete_for=complete_for)

    async def _open(self) -> None:
        if not self._opened:
            await self._journal.open(self._epoch)
            self._opened = True

    def _own_copies(self) -> Mapping[str, bytes]:
        keys = self._journal.keys
        return {key: value for group in keys.groups() if self._owns(group) for key, value in keys.of(group).items()}


class CopiedGroupStore(GroupStore):
    """Stores in `store`, and passes the stored changes to `copies`."""

    def __init__(self, store: GroupStore, copies: OffsetCopies) -> None:
        self._store = store
        self._copies = copies

    async def load(self, group: str) -> Mapping[str, bytes]:
        return await self._store.load(group)

    async def write(self, changes: Sequence[Change]) -> None:
        await self._store.write(changes)
        self._copies.note(changes)

    async def heads(self, after: str, limit: int) -> HeadPage:
        return await self._store.heads(after, limit)


def _differences(stored: Mapping[str, bytes], copied: Mapping[str, bytes]) -> Sequence[Change]:
    """The changes that turn `copied` into `stored`; those of a group are side by side."""
    puts: list[Change] = [PutKey(key, value) for key, value in stored.items() if copied.get(key) != value]
    deletes = [DeleteKey(key) for key in copied.keys() - stored.keys()]
    return sorted([*puts, *deletes], key=lambda change: (group_of(change.key), change.key))


def _in_pieces(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    for start in range(0, len(changes), ENTRY_CHANGES_MAX):
        yield changes[start : start + ENTRY_CHANGES_MAX]
