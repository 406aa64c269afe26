"""Keys, their revisions and what happened to them, in memory: the state behind the embedded key-value store.

A `KeyTree` is pure: no clock, no I/O. It changes in one way only: a `KeyDraft` works out what some transactions would
do to it (`key_draft`), and `apply` takes the draft over as a whole. So a draft whose fate is not known yet can be kept,
and the tree with it stays as it was.

The last events are kept, about `HISTORY_EVENTS_MAX` to twice that, each with what its key was before. A watch
reads them forwards; a range at an older revision undoes them backwards.
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
"""Of an empty tree, as etcd's."""


@dataclass(frozen=True, slots=True)
class Happening:
    """An event, and the key as it was `before` it (None: absent)."""

    event: WatchEvent
    before: KeyValue | None


class KeyTree:
    """See the module's head. `revision` is that of the last change."""

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
        self._leased: dict[int, set[str]] = {}
        for item in items:
            self._hold(item)
        self._history: list[Happening] = []
        self._history_events_max = history_events_max

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def leased_items(self) -> Sequence[KeyValue]:
        """The keys under any lease."""
        return [self._items[key] for held in self._leased.values() for key in held]

    def keys_under(self, lease_id: int) -> frozenset[str]:
        """The keys that a lease holds now."""
        return frozenset(self._leased.get(lease_id, ()))

    def range(
        self, prefix: str, *, limit: int = RANGE_LIMIT, after: str | None = None, revision: int | None = None
    ) -> RangePage:
        """As `KeyValueStore.range`. Raises `Compacted`, `Invalid` for a revision still to come."""
        if limit < 1:
            raise Invalid(f"a page has 1 key or more, not {limit}", field="limit")
        then = self.revision if revision is None else revision
        past = self._undone(then)
        keys = sorted({*self._keys_from(prefix, after), *_within(past, prefix, after)}) if past else None
        items: list[KeyValue] = []
        for key in self._keys_from(prefix, after) if keys is None else keys:
            item = past[key] if key in past else self._items.get(key)
            if item is None:
                continue
            if len(items) == limit:
                return RangePage(tuple(items), then, more=True)
            items.append(item)
        return RangePage(tuple(items), then, more=False)

    def events(self, prefix: str, from_revision: int) -> WatchBatch:
        """What happened to keys with `prefix` from `from_revision` up to now. Raises `Compacted`."""
        if from_revision < self.oldest_revision:
            raise Compacted(
                f"revision {from_revision} is gone: the oldest kept is {self.oldest_revision}",
                oldest_revision=self.oldest_revision,
            )
        first = bisect_left(self._history, from_revision, key=_revision_of)
        events = [kept.event for kept in self._history[first:] if kept.event.item.key.startswith(prefix)]
        return WatchBatch(self.revision, tuple(events))

    def apply(self, happenings: Sequence[Happening]) -> None:
        """Take over what a draft worked out on this tree, in order."""
        for happening in happenings:
            assert self._items.get(happening.event.item.key) == happening.before, "the draft was of another tree"
            self._set(happening)
            self.revision = happening.event.item.mod_revision
        self._history.extend(happenings)
        if len(self._history) > 2 * self._history_events_max:
            self._forget()

    def _set(self, happening: Happening) -> None:
        item, before = happening.event.item, happening.before
        if before is not None and before.lease_id:
            self._release(before)
        if happening.event.kind is EventKind.DELETE:
            del self._items[item.key]
            del self._keys[bisect_left(self._keys, item.key)]
            return
        if before is None:
            insort(self._keys, item.key)
        self._items[item.key] = item
        self._hold(item)

    def _hold(self, item: KeyValue) -> None:
        if item.lease_id:
            self._leased.setdefault(item.lease_id, set()).add(item.key)

    def _release(self, item: KeyValue) -> None:
        held = self._leased[item.lease_id]
        held.discard(item.key)
        if not held:
            del self._leased[item.lease_id]

    def _forget(self) -> None:
        """Drop the oldest events, whole revisions of them."""
        last_revision = _revision_of(self._history[-self._history_events_max - 1])
        del self._history[: bisect_right(self._history, last_revision, key=_revision_of)]
        self.oldest_revision = last_revision + 1

    def _keys_from(self, prefix: str, after: str | None) -> Sequence[str]:
        keys, first = self._keys, bisect_left(self._keys, prefix)
        if after is not None:
            first = max(first, bisect_right(keys, after))
        last = first
        while last < len(keys) and keys[last].startswith(prefix):
            last += 1
        return keys[first:last]

    def _undone(self, revision: int) -> Mapping[str, KeyValue | None]:
        """The keys that changed after `revision`, as they were then."""
        if revision > self.revision:
            raise Invalid(f"revision {revision} is still to come: the last is {self.revision}", field="revision")
        if revision + 1 < self.oldest_revision:
            raise Compacted(
                f"revision {revision} is gone: the oldest kept is {self.oldest_revision}",
                oldest_revision=self.oldest_revision,
            )
        first = bisect_right(self._history, revision, key=_revision_of)
        return {kept.event.item.key: kept.before for kept in reversed(self._history[first:])}


def _revision_of(happening: Happening) -> int:
    return happening.event.item.mod_revision


def _within(keys: Mapping[str, KeyValue | None], prefix: str, after: str | None) -> Sequence[str]:
    return [key for key in keys if key.startswith(prefix) and (after is None or key > after)]
