"""A `GroupStore` in memory, for any number of coordinators, which a test can fence, hold back or let fail."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import HeadPage
from tidelog.coordinator.groups.stored import head_key
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.errors import Fenced, Unavailable


class StoredGroups:
    """The keys that all coordinators share. `epochs`: the epoch of each shard that may write."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, bytes]] = defaultdict(dict)
        self.epochs: dict[int, int] = {}
        self.writes: list[Sequence[Change]] = []
        self.loads: list[str] = []
        self.listings = 0
        self.failing = False
        self.failing_after = False
        self.readable = asyncio.Event()
        self.readable.set()
        self.open = asyncio.Event()
        self.open.set()

    def heads(self, after: str, limit: int) -> HeadPage:
        self.listings += 1
        self.check()
        wanted = [name for name in sorted(self.groups) if name > after and head_key(name) in self.groups[name]]
        return HeadPage({name: self.groups[name][head_key(name)] for name in wanted[:limit]}, len(wanted) > limit)

    @property
    def keys(self) -> Mapping[str, bytes]:
        return {key: value for items in self.groups.values() for key, value in items.items()}

    def check(self) -> None:
        if self.failing:
            raise Unavailable("the store is away")


class MemoryGroupStore:
    """For one leadership of one shard."""

    def __init__(self, stored: StoredGroups, shard: int = 0, epoch: int = 1) -> None:
        self._stored = stored
        self._shard = shard
        self._epoch = epoch
        stored.epochs.setdefault(shard, epoch)

    async def load(self, group: str) -> Mapping[str, bytes]:
        self._stored.loads.append(group)
        await self._stored.readable.wait()
        await asyncio.sleep(0)
        self._stored.check()
        return dict(self._stored.groups[group])

    async def write(self, changes: Sequence[Change]) -> None:
        await self._stored.open.wait()
        await asyncio.sleep(0)
        self._stored.check()
        if self._stored.epochs[self._shard] != self._epoch:
            raise Fenced(f"shard {self._shard} is in epoch {self._stored.epochs[self._shard]}")
        self._stored.writes.append(changes)
        for change in changes:
            items = self._stored.groups[_group_of(change.key)]
            if isinstance(change, PutKey):
                items[change.key] = change.value
            else:
                items.pop(change.key, None)
        if self._stored.failing_after:
            raise Unavailable("the answer was lost")

    async def heads(self, after: str, limit: int) -> HeadPage:
        return self._stored.heads(after, limit)


def _group_of(key: str) -> str:
    return unquote(key.split("/")[1])
