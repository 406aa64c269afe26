"""The key-value seam: what coordination needs of etcd, and nothing more.

Everything above it (membership, leadership, and later consumer groups) is written against this Protocol, and one
conformance suite (`tests/coordinator/key_value_conformance.py`) holds every implementation to it:

    etcd.EtcdKeyValueStore            a cluster
    embedded.EmbeddedKeyValueStore    one broker without etcd: in memory, what has no lease journaled to the bucket

Terms are etcd's. Every change of the store raises its **revision** by one; a transaction is one change. A key's
`version` counts its puts since it was created. A **lease** is a promise to come back before its time is up; a key that
was put under a lease is deleted when the lease ends.

Errors: `Unavailable` means that the outcome is unknown, for a write as for a read; `Denied` that credentials were
refused; `LeaseLost` and `Compacted` as below.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidelog.storage.errors import Conflict, NotFound

RANGE_LIMIT = 1_000
"""Keys in one answer to `range`, unless told."""


class LeaseLost(NotFound):
    """The lease is over or was never there, and so are the keys put under it."""


class Compacted(Conflict):
    """The revision asked for is gone; `oldest_revision` is the first that is kept. Read the state anew."""

    def __init__(self, message: str, *, oldest_revision: int) -> None:
        super().__init__(message)
        self.oldest_revision = oldest_revision


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as it stands. `lease_id` 0: under none."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class RangePage:
    """Keys in ascending order as of `revision`; `more`: ask again with `after` the last of them."""

    items: Sequence[KeyValue]
    revision: int
    more: bool


class Field(Enum):
    """What of a key a transaction compares. An absent key has revisions and version 0, and no value."""

    VALUE = "value"
    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"


@dataclass(frozen=True, slots=True)
class Compare:
    """True if `field` of `key` equals `operand` (bytes for VALUE, an int for the others)."""

    key: str
    field: Field
    operand: bytes | int


def absent(key: str) -> Compare:
    """`key` does not exist."""
    return Compare(key, Field.VERSION, 0)


def unchanged(item: KeyValue) -> Compare:
    """`item` is as it was read."""
    return Compare(item.key, Field.MOD_REVISION, item.mod_revision)


@dataclass(frozen=True, slots=True)
class PutKey:
    """Set `key`; under a lease it ends with it, and `lease_id` 0 takes it out of any."""

    key: str
    value: bytes
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Remove `key` if it is there."""

    key: str


@dataclass(frozen=True, slots=True)
class GetKey:
    """Read `key` in the same moment."""

    key: str


Operation = PutKey | DeleteKey | GetKey


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """`succeeded`: every compare was true, and `then` was done; else `otherwise` was. `found`: the answers to the
    `GetKey`s among what was done, in their order."""

    succeeded: bool
    revision: int
    found: Sequence[KeyValue | None]


@dataclass(frozen=True, slots=True)
class Lease:
    """`ttl_s` as granted, which may be longer than asked for."""

    lease_id: int
    ttl_s: float


class EventKind(Enum):
    """What happened to a key."""

    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. A DELETE carries the key and its revision alone."""

    kind: EventKind
    item: KeyValue


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """All changes of one revision or several, in order, up to and with `revision`. Empty: nothing happened up to
    there."""

    revision: int
    events: Sequence[WatchEvent]


class KeyValueStore(Protocol):
    """See the module's head. Keys are UTF-8 text; reads and writes are linearizable. Every call may run at the same
    time as every other."""

    async def get(self, key: str) -> KeyValue | None:
        """`key` as it stands, None if it is absent."""
        ...

    async def range(
        self, prefix: str, *, limit: int = RANGE_LIMIT, after: str | None = None, revision: int | None = None
    ) -> RangePage:
        """Up to `limit` keys that start with `prefix`, behind `after`. `revision`: as they were then, so that the
        pages of one reading fit together. Raises `Compacted`."""
        ...

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        """Set `key` and return the revision. Raises `LeaseLost`."""
        ...

    async def delete(self, key: str) -> bool:
        """Remove `key`; whether it was there."""
        ...

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        """Compare and act in one step. A key may be changed once in it (`Invalid`). Raises `LeaseLost`."""
        ...

    async def grant(self, ttl_s: float) -> Lease:
        """A new lease of at least `ttl_s`."""
        ...

    async def keep_alive(self, lease_id: int) -> float:
        """Begin the lease's time again; the seconds it has now. Raises `LeaseLost`."""
        ...

    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys; nothing happens if it is over."""
        ...

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch]:
        """Every change to keys with `prefix` from `from_revision` on, each once and in order, until closed. Goes on by
        itself after a lost connection, at the revision it had reached. Raises `Compacted`, `Denied`."""
        ...

    async def incarnation(self) -> str:
        """An id of this store's contents: another one means that it was set up anew (etcd's cluster id)."""
        ...

    async def aclose(self) -> None:
        """Let go of connections; leases are left to run out."""
        ...
