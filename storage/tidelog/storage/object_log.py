"""An object log: objects numbered 0, 1, 2, ... under one prefix, each created once.

A commit of entry *n* is a conditional create of the object named *n*: of any number of racing writers one wins, and the
others get `Conflict`. Tidelog needs no other consensus from a bucket. The write-ahead log of a shard, the manifest of a
shard and the coordinator's journal are object logs. Their modules define what an entry means, who may append, and
when an old entry may be deleted.

    log = ObjectLog(store, "meta/", ".json")
    await log.create(await log.next_number(), body)     # raises Conflict if another writer was faster

Other objects may lie under the same prefix (a write-ahead log's ``_index/``, a manifest's ``lists/``). Numbers have
twenty digits, and the first one is always 0. Listings ask for that 0, so most of the other objects are not listed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from tidelog.storage.layout import number_of, numbered_key
from tidelog.storage.object_store import LIST_PAGE_MAX, Body, ByteRange, ObjectStore, StoredObject

NUMBER_MAX = 10**19 - 1
"""The greatest number whose first of twenty digits is 0. Up to it, keys sort as their numbers do."""


@dataclass(frozen=True)
class EntryInfo:
    """A listed entry: the size of its object, the version that `create` returned, and when it was written, by the
    store's clock."""

    number: int
    version: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True)
class EntryPage:
    """One page of a listing, numbers ascending. The next page starts after the key `resume`; None at the end."""

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
        """Append entry `number` in one request, and return its version. Raises `Conflict` if the entry exists."""
        return await self._store.create(self.key(number), body)

    async def read(self, number: int, byte_range: ByteRange | None = None) -> StoredObject:
        """Entry `number`, or a range of its bytes, in one request. Raises `NotFound`."""
        return await self._store.get(self.key(number), byte_range)

    async def version_of(self, number: int) -> str:
        """The version of entry `number` that `create` returned, in one request. Raises `NotFound`."""
        return (await self._store.head(self.key(number))).version

    async def delete(self, number: int) -> None:
        """Remove entry `number`. It is no error if the entry is absent."""
        await self._store.delete(self.key(number))

    async def delete_many(self, numbers: Sequence[int]) -> None:
        """Remove entries, in any order. It is no error if some are absent."""
        await self._store.delete_many([self.key(number) for number in numbers])

    def before(self, number: int) -> str:
        """The key to list after, so that `number` is the first entry that can come."""
        return self._prefix if number == 0 else self.key(number - 1)

    async def page(self, start_after: str) -> EntryPage:
        """One page of entries after the key `start_after`, in one request. A page can be empty without being the last
        one, if other objects whose names begin with 0 fill it."""
        infos = await self._store.list(f"{self._prefix}0", start_after=start_after)
        numbered = [(number_of(info.key, self._prefix, self._suffix), info) for info in infos]
        entries = tuple(
            EntryInfo(n, info.version, info.size, info.modified_ms) for n, info in numbered if n is not None
        )
        return EntryPage(entries, infos[-1].key if len(infos) >= LIST_PAGE_MAX else None)

    async def entries(self, start: int = 0) -> AsyncIterator[EntryInfo]:
        """Every entry from number `start` on, ascending; one request per page."""
        resume: str | None = self.before(start)
        while resume is not None:
            page = await self.page(resume)
            for entry in page.entries:
                yield entry
            resume = page.resume

    async def numbers(self, start: int = 0) -> AsyncIterator[int]:
        """The numbers of `entries`."""
        async for entry in self.entries(start):
            yield entry.number

    async def newest(self, known: int = -1) -> int:
        """The greatest number there is now, or `known` if none is greater; requests as `newest_entry`."""
        entry = await self.newest_entry(known)
        return entry.number if entry else known

    async def newest_entry(self, known: int = -1) -> EntryInfo | None:
        """The entry with the greatest number; None if none is greater than `known`. Takes one request if less than a
        page follows `known`. Else it searches the end by steps that double and then halve: about twenty requests in a
        log of any length."""
        page = await self._page_with_entries(self.before(known + 1))
        if not page.entries:
            return None
        newest = page.entries[-1]
        step, end = LIST_PAGE_MAX, NUMBER_MAX  # no entry has a number above `end`
        while page.resume is not None and newest.number < end:
            near = end - newest.number <= LIST_PAGE_MAX
            probe = newest.number if near else min(newest.number + step, (newest.number + end) // 2)
            found = await self._page_with_entries(self.key(probe))
            if found.entries:
                page, newest, step = found, found.entries[-1], step * 2
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
        """One above the greatest number from `floor` on, or `floor` if there is none. Another writer may take that
        number first: only `create` decides."""
        last = floor - 1
        async for number in self.numbers(floor):
            last = number
        return last + 1
