"""An object log: objects numbered 0, 1, 2, ... under one prefix, each created once.

To commit entry *n* is to create the object named *n* if it is absent. Of any number of racing writers one wins and the
others get `Conflict`; that is all the consensus Tidelog needs of a bucket. The write-ahead log of a shard, the manifest
of a partition and the coordinator's journal are object logs; what an entry means, who may append and when an old one
may go is theirs to say, not this module's.

    log = ObjectLog(store, "meta/", ".json")
    await log.create(await log.next_number(), body)     # raises Conflict if another was faster: read it, then decide

Other objects may lie under the same prefix (as a write-ahead log's ``_floor``, or a manifest's ``_history/``). Numbers
have twenty digits, of which the first is a 0 for ever; listings ask for that, so neighbours do not lengthen them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tidelog.storage.layout import number_of, numbered_key
from tidelog.storage.object_store import LIST_PAGE_MAX, Body, ByteRange, ObjectStore, StoredObject

NUMBER_MAX = 10**19 - 1
"""The greatest number that begins with a 0 in twenty digits; keys sort as their numbers do up to it."""


@dataclass(frozen=True)
class EntryInfo:
    """What a listing tells of an entry: `size_bytes` of the whole object, `modified_ms` by the store's clock."""

    number: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True)
class EntryPage:
    """One page of a listing, numbers ascending. `resume` is the key to list on from, None at the end."""

    entries: tuple[EntryInfo, ...]
    resume: str | None


class ObjectLog:
    """Entries ``<prefix><number:020d><suffix>`` of `store`. `prefix` ends in ``/``; `suffix` begins with a dot."""

    def __init__(self, store: ObjectStore, prefix: str, suffix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._suffix = suffix

    def key(self, number: int) -> str:
        """The name of entry `number`."""
        assert 0 <= number <= NUMBER_MAX, number
        return numbered_key(self._prefix, number, self._suffix)

    async def create(self, number: int, body: Body) -> str:
        """Append entry `number` in one request; returns its version. Raises `Conflict` if there is one."""
        return await self._store.create(self.key(number), body)

    async def read(self, number: int, byte_range: ByteRange | None = None) -> StoredObject:
        """Entry `number`, or a range of its bytes, in one request. Raises `NotFound`."""
        return await self._store.get(self.key(number), byte_range)

    async def version_of(self, number: int) -> str:
        """The store's tag of entry `number`, which `create` gave, in one request. Raises `NotFound`."""
        return (await self._store.head(self.key(number))).version

    async def delete(self, number: int) -> None:
        """Remove entry `number`; that it is absent is no error."""
        await self._store.delete(self.key(number))

    def before(self, number: int) -> str:
        """The key that a listing starts after, so that `number` is the first entry it can give."""
        return self._prefix if number == 0 else self.key(number - 1)

    async def page(self, start_after: str) -> EntryPage:
        """The entries of one page beyond the key `start_after`, in one request. A page may be empty and not the last:
        neighbours that begin with a 0 too fill it."""
        infos = await self._store.list(f"{self._prefix}0", start_after=start_after)
        numbered = [(number_of(info.key, self._prefix, self._suffix), info) for info in infos]
        entries = tuple(EntryInfo(n, info.size, info.modified_ms) for n, info in numbered if n is not None)
        return EntryPage(entries, infos[-1].key if len(infos) >= LIST_PAGE_MAX else None)

    async def entries(self, start: int = 0) -> AsyncIterator[EntryInfo]:
        """Every entry from number `start` on, ascending, a request a page."""
        resume: str | None = self.before(start)
        while resume is not None:
            page = await self.page(resume)
            for entry in page.entries:
                yield entry
            resume = page.resume

    async def numbers(self, start: int = 0) -> AsyncIterator[int]:
        """The numbers from `start` on that are there now, ascending."""
        async for entry in self.entries(start):
            yield entry.number

    async def newest(self, known: int = -1) -> int:
        """The greatest number there is now, or `known` if none is greater. One request where fewer than a page follow
        `known`; beyond that the end is sought by steps that double and then halve, so that it takes some twenty
        requests in a log of any length."""
        page = await self._page_with_entries(self.before(known + 1))
        newest = page.entries[-1].number if page.entries else known
        step, end = LIST_PAGE_MAX, NUMBER_MAX  # nothing is beyond the end
        while page.resume is not None and newest < end:
            near = end - newest <= LIST_PAGE_MAX
            probe = newest if near else min(newest + step, (newest + end) // 2)
            found = await self._page_with_entries(self.key(probe))
            if found.entries:
                page, newest, step = found, found.entries[-1].number, step * 2
            elif near:
                break
            else:
                end = probe
        return newest

    async def _page_with_entries(self, resume: str) -> EntryPage:
        page = await self.page(resume)
        while page.resume is not None and not page.entries:
            page = await self.page(page.resume)
        return page

    async def next_number(self, floor: int = 0) -> int:
        """One above the greatest number from `floor` on; `floor` itself if there is none. It says nothing of who will
        get that number: only `create` does."""
        last = floor - 1
        async for number in self.numbers(floor):
            last = number
        return last + 1
