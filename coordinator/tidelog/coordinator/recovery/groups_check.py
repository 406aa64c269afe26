"""Checks the journals of groups.

- The newest state of each can be read: its snapshot, and the entries from it on without a gap.
- The heads and offsets in it can be decoded.
- Deep: the newest snapshot equals the state after the snapshot before it and the entries between the two. This reveals
  an object that was altered together with its checksum.

Objects that the older of the two snapshots covers wait for their deletion.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from tidelog.coordinator.groups.copied_groups import committed_ms
from tidelog.coordinator.groups.journal.group_keys import GroupKeys
from tidelog.coordinator.groups.journal.journal_entry import SUFFIX
from tidelog.coordinator.groups.journal.journal_reading import JournalReader
from tidelog.coordinator.groups.stored import HEADS, decoded_head, group_of, is_offset
from tidelog.storage.bucket.finding import UNREADABLE, Finding, Looked, Seen, error, stranger, unreadable
from tidelog.storage.bucket.listing import folders, group_journals
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import GROUPS_PREFIX, group_snapshots_prefix, groups_prefix, is_own_key, number_of
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all


class GroupsCheck:
    """One check of all journals of groups in the bucket `store`."""

    def __init__(self, store: ObjectStore, *, deep: bool) -> None:
        self._store = store
        self._deep = deep

    async def findings(self) -> AsyncIterator[Seen]:
        """The findings, and `Looked` for each object. Raises `Unavailable`."""
        names = [name async for name in group_journals(self._store)]
        async for folder, first in folders(self._store, GROUPS_PREFIX):
            if folder.removesuffix("/") not in names:
                yield stranger(first.key, first.size)
        for name in names:
            async for seen in self._of_journal(name):
                yield seen

    async def _of_journal(self, name: str) -> AsyncIterator[Seen]:
        reader = JournalReader(self._store, name)
        try:
            for finding in _undecodable(name, (await reader.read()).keys):
                yield finding
            if self._deep:
                for finding in await self._altered(reader):
                    yield finding
        except UNREADABLE as fault:
            yield unreadable(fault)
        snapshots = [number async for number in reader.snapshots.numbers()]
        kept = snapshots[-2] if len(snapshots) > 1 else 0
        async for info in list_all(self._store, groups_prefix(name)):
            yield _looked(name, info, kept) if is_own_key(info.key) else stranger(info.key, info.size)

    async def _altered(self, reader: JournalReader) -> list[Finding]:
        """Compare the newest snapshot with the state that the objects before it give, as far as they are there."""
        snapshots = [-1, *[number async for number in reader.snapshots.numbers()]]
        if len(snapshots) < 2:
            return []
        before, newest = snapshots[-2:]
        try:
            expected = await reader.read_from(before, end=newest)
            found = await reader.read_from(newest, end=newest)
        except NotFound:
            return []  # compaction has deleted them
        if expected.next_number != newest or sorted(expected.keys.items()) == sorted(found.keys.items()):
            return []
        key = reader.snapshots.key(newest)
        return [error(key, "differs from the state after the entries before it: one of them was altered")]


def _undecodable(name: str, keys: GroupKeys) -> Iterator[Finding]:
    for key, value in keys.items():
        try:
            if key.startswith(HEADS):
                decoded_head(group_of(key), value)
            elif is_offset(key):
                committed_ms(key, value)
        except Corrupt as fault:
            yield error(f"{groups_prefix(name)} {key}", fault.reason)


def _looked(name: str, info: ObjectInfo, kept: int) -> Looked:
    numbers = [number_of(info.key, prefix(name), SUFFIX) for prefix in (groups_prefix, group_snapshots_prefix)]
    return Looked(info.size, waiting=any(number is not None and number < kept for number in numbers))
