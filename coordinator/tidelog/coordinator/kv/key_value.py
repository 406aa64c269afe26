"""The key-value seam: the part of etcd's interface that coordination uses.

Membership and leadership (later: groups) use this Protocol only. One conformance suite
(`tests/coordinator/key_value_conformance.py`) runs against each implementation:

    EtcdKeyValueStore        coordinator/etcd: for a cluster
    EmbeddedKeyValueStore    tests/coordinator/embedded_kv: in memory, for tests

The terms are etcd's. Each change of the store raises its **revision** by one; a transaction is one change. A key's
`version` counts its puts since it was created. A **lease** lasts for its time to live unless its owner renews it; when
it ends, the keys put under it are deleted.

Errors: `Unavailable` means that the outcome is unknown, for a write as for a read. `Denied` means that credentials were
refused. `LeaseLost` and `Compacted` are defined below.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidelog.storage.errors import Conflict, NotFound

RANGE_LIMIT = 1_000
"""The default page size of `range`, in keys."""


class LeaseLost(NotFound):
    """The lease has ended or never existed; the keys put under it are deleted."""


class Compacted(Conflict):
    """The requested revision is no longer kept: read the current state, and watch from there."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key at one revision. `lease_id` is 0 if the key is under no lease."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class RangePage:
    """Keys in ascending order at `revision`. If `more`, ask for the next page with `after` set to the last key."""

    items: Sequence[KeyValue]
    revision: int
    more: bool


@dataclass(frozen=True, slots=True)
class AtRevision:
    """True if the last change of `key` was at `mod_revision`; 0 means that the key is absent."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True)
class HasValue:
    """True if `key` exists and holds `value`."""

    key: str
    value: bytes


Compare = AtRevision | HasValue


def absent(key: str) -> Compare:
    """`key` does not exist."""
    return AtRevision(key, 0)


def unchanged(item: KeyValue) -> Compare:
    """Nobody has written or deleted `item` since it was read."""
    return AtRevision(item.key, item.mod_revision)


def as_read(key: str, item: KeyValue | None) -> Compare:
    """`key` is as it was read: `item`, or absent if `item` is None."""
    return unchanged(item) if item else absent(key)


@dataclass(frozen=True, slots=True)
class PutKey:
    """Set `key` under `lease_id`, or under no lease if that is 0."""

    key: str
    value: bytes
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Remove `key` if it exists."""

    key: str


@dataclass(frozen=True, slots=True)
class GetKey:
    """Read `key` within the transaction."""

    key: str


Operation = PutKey | DeleteKey | GetKey


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """If `succeeded`, every compare was true and `then` was applied, else `otherwise`. `found`: the results of the
    `GetKey`s that were applied, in order."""

    succeeded: bool
    revision: int
    found: Sequence[KeyValue | None]


@dataclass(frozen=True, slots=True)
class Lease:
    """`ttl_s` as granted; it may be longer than requested."""

    lease_id: int
    ttl_s: float


class EventKind(Enum):
    """Whether a key was set or removed."""

    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change of a key. For a DELETE only the key and its `mod_revision` are set."""

    kind: EventKind
    item: KeyValue


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """The changes of one or more revisions, in order, up to and including `revision`. It may be empty: then nothing
    changed up to that revision."""

    revision: int
    events: Sequence[WatchEvent]


class KeyValueStore(Protocol):
    """See the module docstring. Keys are UTF-8 text; reads and writes are linearizable. Calls may run concurrently.
    Implementations inherit `put` and `delete`."""

    async def get(self, key: str) -> KeyValue | None:
        """The current `key`, None if it is absent."""
        ...

    async def range(
        self, prefix: str, *, limit: int = RANGE_LIMIT, after: str | None = None, revision: int | None = None
    ) -> RangePage:
        """Up to `limit` keys that start with `prefix` and sort after `after`, at `revision` or at the newest one. To
        read several consistent pages, pass the first page's revision. Raises `Compacted`."""
        ...

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        """Set `key` and return the revision. Raises `LeaseLost`."""
        return (await self.transact((), [PutKey(key, value, lease_id)])).revision

    async def delete(self, key: str) -> bool:
        """Remove `key`; returns whether it existed."""
        return (await self.transact((), [GetKey(key), DeleteKey(key)])).found[0] is not None

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        """Compare and apply in one step. A transaction may change each key once (`Invalid`). Raises `LeaseLost`."""
        ...

    async def grant(self, ttl_s: float) -> Lease:
        """A new lease that lasts at least `ttl_s`."""
        ...

    async def keep_alive(self, lease_id: int) -> float:
        """Renew the lease and return its time to live in seconds. Raises `LeaseLost`."""
        ...

    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys. Does nothing if the lease has ended."""
        ...

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch]:
        """Every change of keys with `prefix` from `from_revision` on, each once and in order, until closed. After a
        lost connection it resumes where it stopped. Raises `Compacted`, `Denied`."""
        ...

    async def incarnation(self) -> str:
        """An id of the store's contents. If it differs from an earlier answer, the store was set up again or restored
        (etcd: its cluster id)."""
        ...

    async def aclose(self) -> None:
        """Close connections; leases end when their time is up."""
        ...


async def read_prefix(kv: KeyValueStore, prefix: str, revision: int | None = None) -> tuple[list[KeyValue], int]:
    """All keys of `prefix` at one revision (by default the newest), and that revision. Raises `Compacted` if the
    revision is dropped before the last page is read."""
    page = await kv.range(prefix, revision=revision)
    items = list(page.items)
    while page.more:
        page = await kv.range(prefix, after=items[-1].key, revision=page.revision)
        items += page.items
    return items, page.revision


async def update_key(kv: KeyValueStore, key: str, decide: Callable[[KeyValue | None], bytes | None]) -> None:
    """Set `key` to the value that `decide` returns for its current state, or leave it if that is None. `decide` is
    called again if another process writes the key in between. Raises what `decide` raises, `Unavailable`."""
    while True:
        item = await kv.get(key)
        value = decide(item)
        if value is None or (await kv.transact([as_read(key, item)], [PutKey(key, value)])).succeeded:
            return
