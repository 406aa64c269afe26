"""Stores the embedded key-value store in the journal, one entry per group of requests.

    kv/head              {"format_version", "incarnation", "revision", "group_id"} of the last group
    kv/keys/<key>        {"value" (base64), "create_revision", "mod_revision", "version"}: keys without a lease

`embedded` describes what happens to a group whose entry is in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from tests.coordinator.embedded_kv.key_draft import KeyDraft
from tests.coordinator.embedded_kv.key_space import FIRST_REVISION

from tidelog.coordinator.journal import Change, Delete, Journal, Put
from tidelog.coordinator.kv.key_value import KeyValue
from tidelog.storage.errors import Conflict, Corrupt
from tidelog.storage.runtime import Runtime

KV_FORMAT_VERSION = 1
_HEAD = "kv/head"
_KEYS = "kv/keys/"

_Shape = TypeVar("_Shape", bound=msgspec.Struct)


class _Head(msgspec.Struct, frozen=True):
    format_version: int
    incarnation: str
    revision: int
    group_id: str


class _StoredKey(msgspec.Struct, frozen=True):
    value: bytes
    create_revision: int
    mod_revision: int
    version: int


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """The store's contents in the journal."""

    items: Sequence[KeyValue]
    revision: int
    incarnation: str


class EmbeddedJournal:
    """Writes groups to `journal`, one at a time."""

    def __init__(self, journal: Journal, runtime: Runtime) -> None:
        self._journal = journal
        self._incarnation = runtime.entropy.new_id()
        self._seen: msgspec.Raw | None = None

    def read(self) -> StoredKeys:
        """The keys in the journal. Raises `Corrupt`."""
        self._seen = self._journal.get(_HEAD)
        revision = FIRST_REVISION
        if self._seen is not None:
            head = _decoded(_HEAD, self._seen, _Head)
            if head.format_version != KV_FORMAT_VERSION:
                raise Corrupt(f"meta/ {_HEAD}", f"has format version {head.format_version}, not {KV_FORMAT_VERSION}")
            self._incarnation, revision = head.incarnation, head.revision
        items = tuple(_item(key, raw) for key, raw in self._journal.items(_KEYS))
        return StoredKeys(items, revision, self._incarnation)

    async def write(self, draft: KeyDraft, group_id: str) -> None:
        """Write `draft`, unless an earlier try with `group_id` has written it; a draft of leased keys only is not
        written. Raises `Unavailable` if the outcome is unknown, and `Conflict` if another process has written."""
        changes = _changes(draft)
        if not changes:
            return
        head = msgspec.Raw(msgspec.json.encode(_Head(KV_FORMAT_VERSION, self._incarnation, draft.revision, group_id)))

        def decide() -> Sequence[Change]:
            found = self._journal.get(_HEAD)
            if found == head:
                return ()
            if found != self._seen:
                raise Conflict("another process has written the key-value store")
            return (*changes, Put(_HEAD, head))

        await self._journal.update(decide)
        self._seen = head


def _changes(draft: KeyDraft) -> Sequence[Change]:
    """The journal's changes for `draft`: the keys that are, or were, under no lease."""
    changes: list[Change] = []
    for key, before, after in draft.changed():
        if after is not None and not after.lease_id:
            stored = _StoredKey(after.value, after.create_revision, after.mod_revision, after.version)
            changes.append(Put(_KEYS + key, msgspec.Raw(msgspec.json.encode(stored))))
        elif before is not None and not before.lease_id:
            changes.append(Delete(_KEYS + key))
    return changes


def _item(key: str, raw: msgspec.Raw) -> KeyValue:
    stored = _decoded(key, raw, _StoredKey)
    return KeyValue(key.removeprefix(_KEYS), stored.value, stored.create_revision, stored.mod_revision, stored.version)


def _decoded(key: str, raw: msgspec.Raw, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.DecodeError as error:
        raise Corrupt(f"meta/ {key}", f"is no {shape.__name__.strip('_')}: {error}") from error
