"""Copies the journals of groups: of each the newest snapshot, the entries from it on, and then nothing older.

The snapshot comes first and the entries in ascending order, so a reader of the target finds a state of the source at
any moment. If the source compacts a journal meanwhile, an object can be gone: then its copy begins again at the newer
snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.storage.bucket.copy_transfer import Changed, Transfer
from tidelog.storage.bucket.finding import error
from tidelog.storage.bucket.listing import group_journals
from tidelog.storage.errors import NotFound
from tidelog.storage.layout import group_snapshots_prefix, groups_prefix, number_of
from tidelog.storage.object_store import ObjectInfo, list_all

SUFFIX = ".json"
TRIES_MAX = 5


class GroupsCopy:
    """One copy of all journals of groups."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer

    async def run(self) -> None:
        """Raises `Conflict` if the target has other entries, `Unavailable`; a journal that is compacted all the while
        is noted as damaged."""
        async for name in group_journals(self._transfer.source):
            await self._copy_patiently(name)

    async def _copy_patiently(self, name: str) -> None:
        for _ in range(TRIES_MAX):
            try:
                await self._copy(name)
                return
            except (NotFound, Changed):
                continue
        self._transfer.note_damage(error(groups_prefix(name), "changes faster than it can be copied: copy again"))

    async def _copy(self, name: str) -> None:
        snapshots, entries = group_snapshots_prefix(name), groups_prefix(name)
        newest = (await self._numbered(snapshots))[-1:]
        start = number_of(newest[0].key, snapshots, SUFFIX) if newest else 0
        assert start is not None, "its key is numbered"
        counted = [
            info for info in await self._numbered(entries) if (number_of(info.key, entries, SUFFIX) or 0) >= start
        ]
        await self._transfer.append(snapshots, newest, "journal of groups")
        await self._transfer.append(entries, counted, "journal of groups")
        kept = {info.key for info in (*newest, *counted)}
        await self._transfer.delete([key for key in await self._transfer.sizes(entries) if key not in kept])

    async def _numbered(self, prefix: str) -> Sequence[ObjectInfo]:
        listed = [info async for info in list_all(self._transfer.source, f"{prefix}0")]
        return [info for info in listed if number_of(info.key, prefix, SUFFIX) is not None]
