"""Copies the journals of groups: of each the newest snapshot, the entries from it on, and then nothing older.

The snapshot comes first and the entries in ascending order, so a reader of the target finds a state of the source at
any moment. If the source compacts a journal meanwhile, an object can be gone: then its copy begins again at the newer
snapshot.
"""

from __future__ import annotations

from tidelog.storage.bucket.copy.transfer import Changed, Transfer
from tidelog.storage.bucket.finding import error
from tidelog.storage.bucket.listing import group_journals
from tidelog.storage.errors import NotFound
from tidelog.storage.layout import group_snapshots_prefix, groups_prefix

SUFFIX = ".json"
TRIES_MAX = 5


async def copy_groups(transfer: Transfer) -> None:
    """Copy all journals of groups. Raises `Conflict` if the target has other entries, `Unavailable`; a journal that is
    compacted all the while is noted as damaged."""
    async for name in group_journals(transfer.source):
        for _ in range(TRIES_MAX):
            try:
                await _copy(transfer, name)
                break
            except (NotFound, Changed):
                continue
        else:
            transfer.note_damage(error(groups_prefix(name), "changes faster than it can be copied: copy again"))


async def _copy(transfer: Transfer, name: str) -> None:
    snapshots, entries = group_snapshots_prefix(name), groups_prefix(name)
    newest = list((await transfer.entries(snapshots, SUFFIX)).items())[-1:]
    counted = await transfer.entries(entries, SUFFIX, newest[0][0] if newest else 0)
    copied = [info for _, info in newest], list(counted.values())
    await transfer.append(snapshots, copied[0], "journal of groups")
    await transfer.append(entries, copied[1], "journal of groups")
    kept = {info.key for infos in copied for info in infos}
    await transfer.delete([key for key in await transfer.sizes(entries) if key not in kept])
