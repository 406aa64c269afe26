"""Reads groups from the bucket: the journals of all shards, and that of a broker without etcd.

A group can be in several journals: in that of its shard, in that of the shard that had it when there were fewer shards,
and in `embedded`, from the time before the cluster. The journal of its shard decides, if it is complete for the present
number of shards (`offset_copies`): a group that is not in it was deleted. Else the group is taken from the
journal whose last change of it is the newest, by the times in its offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.journal.journal_reading import JournalReader, JournalState
from tidelog.coordinator.groups.stored import StoredOffset, is_copied, is_offset
from tidelog.storage.bucket.listing import group_journals
from tidelog.storage.errors import Corrupt
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import group_copies
from tidelog.storage.object_store import ObjectStore

AT_ONCE = 8

_DAMAGED = (
    "The object is a copy of committed offsets. If it is a snapshot and an older one is beside it, delete it and try "
    "again. To go on without the offsets of this journal, delete groups/{journal}/"
)

GroupCopy = Mapping[str, bytes]
"""The head and offsets of a group, by their keys."""


async def copied_groups(bucket: ObjectStore, shards: int) -> Mapping[str, GroupCopy]:
    """The groups of a cluster of `shards` shards. Raises `Corrupt`, `Unavailable`."""

    async def read(name: str) -> JournalState:
        try:
            return await JournalReader(bucket, name).read()
        except Corrupt as error:
            raise Corrupt(error.name, f"{error.reason}. {_DAMAGED.format(journal=name)}") from error

    journals = {name: state async for name, state in in_order(group_journals(bucket), read, at_once=AT_ONCE)}
    return chosen_copies(journals, shards)


def chosen_copies(journals: Mapping[str, JournalState], shards: int) -> Mapping[str, GroupCopy]:
    """See the module's docstring."""
    names = {group for state in journals.values() for group in state.keys.groups()}
    copies = {name: _chosen(name, journals, shards) for name in sorted(names)}
    return {name: copy for name, copy in copies.items() if copy}


def _chosen(group: str, journals: Mapping[str, JournalState], shards: int) -> GroupCopy:
    home = journals.get(group_copies(shard_of_group(group, shards)))
    if home is not None and home.complete_for == shards:
        return _copied_part(home.keys.of(group))
    candidates = [_copied_part(state.keys.of(group)) for state in journals.values()]
    return max(candidates, key=_last_commit_ms)


def _copied_part(keys: Mapping[str, bytes]) -> GroupCopy:
    return {key: value for key, value in keys.items() if is_copied(key)}


def _last_commit_ms(copy: GroupCopy) -> int:
    """When the newest offset was committed; 0 for a group without offsets, -1 for none."""
    times = [committed_ms(key, value) for key, value in copy.items() if is_offset(key)]
    return max(times, default=0 if copy else -1)


def committed_ms(key: str, value: bytes) -> int:
    """When the offset `value` of `key` was committed."""
    try:
        return msgspec.msgpack.decode(value, type=StoredOffset).at_ms
    except msgspec.MsgspecError as error:
        raise Corrupt(key, f"is no committed offset: {error}") from error
