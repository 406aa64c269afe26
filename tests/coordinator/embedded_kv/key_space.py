"""The keys of the embedded key-value store at their current revision, and the last changes, in memory.

A `KeySpace` is pure: no clock, no I/O. It changes only through `apply`, which takes the changes that a `KeyDraft`
computed. So the store can keep a draft whose journal entry is in doubt, and the key space stays as it was.

It keeps the last `HISTORY_EVENTS_MAX` changes or more, at most twice as many, each with the key's previous state. A
watch reads them forwards; a range at an older revision undoes them backwards.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.coordinator.kv.key_value import (
    RANGE_LIMIT,
    Compacted,
    EventKind,
    KeyValue,
    RangePage,
    WatchBatch,
    WatchEvent,
)
from tidelog.storage.errors import Invalid

HISTORY_EVENTS_MAX = 10_000
FIRST_REVISION = 1
"""The revision of an empty key space, as in etcd."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """An event, and the key's state `before` it (None: absent)."""

    event: WatchEvent
    before: KeyValue | None


class KeySpace:
    """See the module docstring. `revision` is that of the last change."""

    def __init__(
        self,
        items: Sequence[KeyValue] = (),
        revision: int = FIRST_REVISION,
        history_events_max: int = HISTORY_EVENTS_MAX,
    ) -> None:
        self.revision = revision
        self.oldest_revision = revision + 1
        self._items = {item.key: item for item in items}
        self._keys = sorted(self._items)
        self._history: list[KeyChange] = []
        self._history_events_max = history_events_max

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def leased_items(self) -> Sequence[KeyValue]:
        """The keys that are under a lease."""
        return [item for item in self._items.values() if item.lease_id]

    def range(
        self, prefix: str, *, limit: int = RANGE_LIMIT, after: str | None = None, revision: int | None = None
    ) -> RangePage:
        """As `KeyValueStore.range`. Raises `Compacted`, and `Invalid` for a future revision."""
        if limit < 1:
            raise Invalid(f"a page has 1 key or more, not {limit}", field="limit")
        at = self.revision if revision is None else revision
        past = self._undone(at)
        keys = sorted({*self._keys_from(prefix, after), *_within(past, prefix, after)}) if past else None
        items: list[KeyValue] = []
        for key in self._keys_from(prefix, after) if keys is None else keys:
            item = past[key] if key in past else self._items.get(key)
            if item is None:
                continue
            if len(items) == limit:
                return RangePage(tuple(items), at, more=True)
            items.append(item)
        return RangePage(tuple(items), at, more=False)

    def events(self, prefix: str, from_revision: int) -> WatchBatch:
        """The changes of keys with `prefix` from `from_revision` until now. Raises `Compacted`."""
        self._check_kept(from_revision)
        first = bisect_left(self._history, from_revision, key=_revision_of)
        events = [change.event for change in self._history[first:] if change.event.item.key.startswith(prefix)]
        return WatchBatch(self.revision, tuple(events))

    def apply(self, changes: Sequence[KeyChange]) -> None:
        """Apply, in order, the changes that a draft computed on this state."""
        for change in changes:
            assert self._items.get(change.event.item.key) == change.before, "the draft was computed on another state"
            self._set(change)
            self.revision = change.event.item.mod_revision
        self._history.extend(changes)
        if len(self._history) > 2 * self._history_events_max:
            self._trim_history()

    def _set(self, change: KeyChange) -> None:
        item = change.event.item
        if change.event.kind is EventKind.DELETE:
            del self._items[item.key]
            del self._keys[bisect_left(self._keys, item.key)]
            return
        if change.before is None:
            insort(self._keys, item.key)
        self._items[item.key] = item

    def _trim_history(self) -> None:
        """Drop the oldest changes, in whole revisions."""
        last_revision = _revision_of(self._history[-self._history_events_max - 1])
        del self._history[: bisect_right(self._history, last_revision, key=_revision_of)]
        self.oldest_revision = last_revision + 1

    def _check_kept(self, revision: int) -> None:
        if revision < self.oldest_revision:
            raise Compacted(f"revision {revision} is gone: the oldest kept is {self.oldest_revision}")

    def _keys_from(self, prefix: str, after: str | None) -> Sequence[str]:
        keys, first = self._keys, bisect_left(self._keys, prefix)
        if after is not None:
            first = max(first, bisect_right(keys, after))
        last = first
        while last < len(keys) and keys[last].startswith(prefix):
            last += 1
        return keys[first:last]

    def _undone(self, revision: int) -> Mapping[str, KeyValue | None]:
        """The keys that changed after `revision`, in their state at that revision."""
        if revision > self.revision:
            raise Invalid(f"revision {revision} is still to come: the last is {self.revision}", field="revision")
        self._check_kept(revision + 1)
        first = bisect_right(self._history, revision, key=_revision_of)
        return {change.event.item.key: change.before for change in reversed(self._history[first:])}


def _revision_of(change: KeyChange) -> int:
    return change.event.item.mod_revision


def _within(keys: Mapping[str, KeyValue | None], prefix: str, after: str | None) -> Sequence[str]:
    return [key for key in keys if key.startswith(prefix) and (after is None or key > after)]
