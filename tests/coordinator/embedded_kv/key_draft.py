"""Computes what a sequence of transactions does to a `KeySpace`, without changing it.

    draft = KeyDraft(space, lease_lives)
    outcome = draft.run(request)         # a TransactionResult, or the error for the caller
    space.apply(draft.changes)           # now, later or never; all of them

A later transaction of a draft sees the changes of the earlier ones. A transaction that fails changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.coordinator.embedded_kv.key_space import KeyChange, KeySpace

from tidelog.coordinator.kv.key_value import (
    Compare,
    DeleteKey,
    EventKind,
    GetKey,
    HasValue,
    KeyValue,
    LeaseLost,
    Operation,
    PutKey,
    TransactionResult,
    WatchEvent,
)
from tidelog.storage.errors import Invalid, TooLarge

OPERATIONS_MAX = 128
"""The most compares, and the most operations in one branch, of a transaction: etcd's default."""
VALUE_BYTES_MAX = 1 << 20
KEY_CHARACTERS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Transaction:
    """A request to compare and apply. The constructor raises `Invalid` and `TooLarge`."""

    compares: Sequence[Compare]
    then: Sequence[Operation]
    otherwise: Sequence[Operation] = ()

    def __post_init__(self) -> None:
        for part in (self.compares, self.then, self.otherwise):
            if len(part) > OPERATIONS_MAX:
                raise Invalid(f"a transaction has at most {OPERATIONS_MAX} compares or operations, not {len(part)}")
        _check_operations(self.then)
        _check_operations(self.otherwise)


@dataclass(frozen=True, slots=True)
class EndLease:
    """A request to end a lease and delete its keys, as one change."""

    lease_id: int


Request = Transaction | EndLease
Outcome = TransactionResult | LeaseLost


class KeyDraft:
    """See the module docstring. `lease_lives` returns whether a lease has not ended."""

    def __init__(self, space: KeySpace, lease_lives: Callable[[int], bool]) -> None:
        self.changes: list[KeyChange] = []
        self.ended_leases: list[int] = []
        self.revision = space.revision
        self._space = space
        self._lease_lives = lease_lives
        self._changed: dict[str, KeyValue | None] = {}

    def get(self, key: str) -> KeyValue | None:
        return self._changed[key] if key in self._changed else self._space.get(key)

    def changed(self) -> Sequence[tuple[str, KeyValue | None, KeyValue | None]]:
        """Each key that differs from the key space: its name, its old and its new state."""
        compared = ((key, self._space.get(key), item) for key, item in self._changed.items())
        return [(key, before, after) for key, before, after in compared if before != after]

    def run(self, request: Request) -> Outcome:
        """Compute `request` on top of the draft."""
        if isinstance(request, Transaction):
            return self._transact(request)
        self.ended_leases.append(request.lease_id)
        for key in sorted(self._changed.keys() | {item.key for item in self._space.leased_items()}):
            if (item := self.get(key)) is not None and item.lease_id == request.lease_id:
                self._delete(key)
        self._close_revision()
        return TransactionResult(True, self.revision, ())

    def _transact(self, request: Transaction) -> Outcome:
        succeeded = all(self._holds(compare) for compare in request.compares)
        operations = request.then if succeeded else request.otherwise
        for operation in operations:
            if isinstance(operation, PutKey) and operation.lease_id and not self._lives(operation.lease_id):
                return LeaseLost(f"lease {operation.lease_id:x} has ended or never existed: grant a new one")
        found: list[KeyValue | None] = []
        for operation in operations:
            if isinstance(operation, PutKey):
                self._put(operation)
            elif isinstance(operation, DeleteKey):
                self._delete(operation.key)
            else:
                found.append(self.get(operation.key))
        self._close_revision()
        return TransactionResult(succeeded, self.revision, tuple(found))

    def _lives(self, lease_id: int) -> bool:
        return lease_id not in self.ended_leases and self._lease_lives(lease_id)

    def _holds(self, compare: Compare) -> bool:
        item = self.get(compare.key)
        if isinstance(compare, HasValue):
            return item is not None and item.value == compare.value
        return (item.mod_revision if item else 0) == compare.mod_revision

    def _put(self, put: PutKey) -> None:
        before, revision = self.get(put.key), self.revision + 1
        created, version = (before.create_revision, before.version + 1) if before else (revision, 1)
        item = KeyValue(put.key, put.value, created, revision, version, put.lease_id)
        self._record(WatchEvent(EventKind.PUT, item), before, item)

    def _delete(self, key: str) -> None:
        if (before := self.get(key)) is not None:
            gone = KeyValue(key, b"", 0, self.revision + 1, 0)
            self._record(WatchEvent(EventKind.DELETE, gone), before, None)

    def _record(self, event: WatchEvent, before: KeyValue | None, after: KeyValue | None) -> None:
        self.changes.append(KeyChange(event, before))
        self._changed[event.item.key] = after

    def _close_revision(self) -> None:
        """The changes since the last call share one revision."""
        if self.changes:
            self.revision = self.changes[-1].event.item.mod_revision


def _check_operations(operations: Sequence[Operation]) -> None:
    changes = [operation for operation in operations if not isinstance(operation, GetKey)]
    key, times = max(Counter(change.key for change in changes).items(), key=lambda count: count[1], default=("", 0))
    if times > 1:
        raise Invalid(f"a transaction changes the key {key!r} {times} times; the most is once")
    for change in changes:
        if not 1 <= len(change.key) <= KEY_CHARACTERS_MAX:
            raise Invalid(f"a key has 1 to {KEY_CHARACTERS_MAX:,} characters, not {len(change.key):,}", field="key")
        if isinstance(change, PutKey) and len(change.value) > VALUE_BYTES_MAX:
            raise TooLarge(
                f"the value of {change.key!r} has {len(change.value):,} bytes; the most is {VALUE_BYTES_MAX:,}",
                limit_name="VALUE_BYTES_MAX",
                limit_bytes=VALUE_BYTES_MAX,
            )
