"""The objects of a journal of groups: entries, and snapshots of the state.

Both are JSON with a format version and a checksum. Values are base64. A reader ignores fields that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import msgspec

from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.storage.errors import Corrupt
from tidelog.storage.formats import GROUP_JOURNAL
from tidelog.storage.json_checksum import check_checksum, with_checksum
from tidelog.storage.runtime import Clock

SUFFIX = ".json"
_KEYS_AT_ONCE = 2_000
"""A snapshot is encoded so many keys at a time, in less than a millisecond, so that the event loop goes on."""

StoredChange: TypeAlias = tuple[str, bytes | None]
"""A key and its new value; None deletes it."""


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. `entry_id`: by it the writer recognizes its entry. `epoch`: of the writer; it never falls along a
    journal. `complete_for`: see `OffsetCopies`; 0 in an entry that does not change it."""

    format_version: int
    number: int
    entry_id: str
    epoch: int
    written_at_ms: int
    changes: tuple[StoredChange, ...] = ()
    complete_for: int = 0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state after all entries below `next_number`. `epoch`: the highest of them."""

    format_version: int
    next_number: int
    epoch: int
    complete_for: int
    keys: dict[str, bytes]


class _Version(msgspec.Struct):
    format_version: int


_Shape = TypeVar("_Shape", JournalEntry, Snapshot)


def stored_changes(changes: Sequence[Change]) -> tuple[StoredChange, ...]:
    return tuple((change.key, change.value if isinstance(change, PutKey) else None) for change in changes)


def changes_of(entry: JournalEntry) -> Sequence[Change]:
    return [DeleteKey(key) if value is None else PutKey(key, value) for key, value in entry.changes]


def encode_entry(entry: JournalEntry) -> bytes:
    return with_checksum(msgspec.json.encode(entry))


def decode_entry(key: str, number: int, data: bytes) -> JournalEntry:
    """Raises `Corrupt` naming the object `key`."""
    entry = _decoded(key, data, JournalEntry)
    if entry.number != number:
        raise Corrupt(key, f"holds entry {entry.number}")
    return entry


async def encode_snapshot(
    next_number: int, epoch: int, complete_for: int, keys: Sequence[tuple[str, bytes]], clock: Clock
) -> bytes:
    """Lets other tasks run in between; `keys` must not change meanwhile."""
    empty = Snapshot(
        format_version=GROUP_JOURNAL.newest, next_number=next_number, epoch=epoch, complete_for=complete_for, keys={}
    )
    head = msgspec.json.encode(empty).removesuffix(b"}}")  # `keys` is its last field
    parts = []
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        parts.append(msgspec.json.encode(dict(keys[start : start + _KEYS_AT_ONCE]))[1:-1])
        await clock.sleep(0)
    return with_checksum(head + b",".join(parts) + b"}}")


def decode_snapshot(key: str, next_number: int, data: bytes) -> Snapshot:
    """Raises `Corrupt` naming the object `key`."""
    snapshot = _decoded(key, data, Snapshot)
    if snapshot.next_number != next_number:
        raise Corrupt(key, f"holds the snapshot {snapshot.next_number}")
    return snapshot


def _decoded(key: str, data: bytes, shape: type[_Shape]) -> _Shape:
    try:
        version = msgspec.json.decode(data, type=_Version).format_version
        check_checksum(key, data)
        GROUP_JOURNAL.check(key, version)
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(key, f"is no {shape.__name__} of a journal of groups: {error}") from error
