"""Stores the embedded key-value store in the journal, one entry per group of requests.

    kv/head              {"format_version", "incarnation", "revision", "group_id"} of the last group
    kv/keys/<key>        {"value" (base64), "create_revision", "mod_revision", "version"}: keys without a lease

`embedded` describes what happens to a group whose entry is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tidelog.coordinator.journal import Change, Delete, Journal, Put
from tidelog.coordinator.kv.key_draft import KeyDraft, Outcome
from tidelog.coordinator.kv.key_space import FIRST_REVISION
from tidelog.coordinator.kv.key_value import KeyValue
from tidelog.storage.errors import Corrupt, Unavailable
from tidelog.storage.runtime import Runtime

KV_FORMAT_VERSION = 1
DOUBTFUL_MAX = 100
"""The most groups in doubt that are remembered. Of an older one, only the keys without a lease can be recovered."""
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


Drafted = tuple[KeyDraft, Sequence[Outcome]]


class EmbeddedJournal:
    """Writes groups to `journal`, one at a time. Calls `apply` when a group in doubt turns out to be in the journal,
    and `reload` when another process has written."""

    def __init__(
        self,
        journal: Journal,
        runtime: Runtime,
        apply: Callable[[KeyDraft], None],
        reload: Callable[[StoredKeys], None],
    ) -> None:
        self._journal = journal
        self._runtime = runtime
        self._apply = apply
        self._reload = reload
        self._incarnation = runtime.entropy.new_id()
        self._seen: msgspec.Raw | None = None
        self._in_doubt: dict[str, KeyDraft] = {}

    @property
    def in_doubt(self) -> bool:
        """Whether the journal may hold a group that is not applied."""
        return bool(self._in_doubt)

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

    async def commit(self, compute: Callable[[], Drafted]) -> Drafted:
        """Write the draft that `compute` makes on the current keys; it may be called again. After `Unavailable` the
        group is in doubt."""
        group_id = self._runtime.entropy.new_id()
        drafted: Drafted | None = None
        written: msgspec.Raw | None = None

        def decide() -> Sequence[Change]:
            nonlocal drafted, written
            written = None
            self._absorb()
            drafted = compute()
            changes = _changes(drafted[0])
            if not changes and not self._in_doubt:
                return ()
            head = _Head(KV_FORMAT_VERSION, self._incarnation, drafted[0].revision, group_id)
            written = msgspec.Raw(msgspec.json.encode(head))
            return (*changes, Put(_HEAD, written))

        try:
            await self._journal.update(decide)
        except Unavailable:
            if written is not None and drafted is not None:
                self._remember(group_id, drafted[0])
            raise
        assert drafted is not None, "the journal calls `decide`"
        if written is not None:
            self._seen = written
            self._in_doubt.clear()
        return drafted

    def _absorb(self) -> None:
        """If the journal has a new head, apply the group in doubt that wrote it, or reload the keys."""
        raw = self._journal.get(_HEAD)
        if raw is None or raw == self._seen:
            return
        draft = self._in_doubt.get(_decoded(_HEAD, raw, _Head).group_id)
        self._in_doubt.clear()
        if draft is not None:
            self._seen = raw
            self._apply(draft)
        else:
            self._reload(self.read())

    def _remember(self, group_id: str, draft: KeyDraft) -> None:
        if len(self._in_doubt) >= DOUBTFUL_MAX:
            del self._in_doubt[next(iter(self._in_doubt))]
        self._in_doubt[group_id] = draft


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
