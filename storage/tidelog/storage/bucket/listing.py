"""Walks over the keys of a bucket: folders, shards, topics, partitions.

`folders` and the walks made of it cost one request per folder, however many objects the folder holds.
`list_segments` lists every object under ``topics/``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import (
    EMBEDDED_GROUPS,
    GROUPS_PREFIX,
    MANIFESTS_PREFIX,
    TOPICS_PREFIX,
    WAL_PREFIX,
    shard_segment_name,
    shard_segment_prefix,
)
from tidelog.storage.object_store import LIST_PAGE_MAX, ObjectInfo, ObjectStore, list_all
from tidelog.storage.segments.topic_segment import SegmentPlace

A = TypeVar("A")

SHARDS_MAX = 10_000
"""Folders that are named like shards, so that foreign ones cannot fill the memory of a tool."""

_AFTER_SLASH = "0"
"""The character after "/": a folder's name without its slash and with this sorts after all objects of the folder."""
_AFTER_ALL = "~"
"""The greatest character of a key."""


async def folders(store: ObjectStore, prefix: str, pattern: str = "[^/]+/") -> AsyncIterator[tuple[str, ObjectInfo]]:
    """The folders below `prefix` that match `pattern`, ascending, each with its first object. A folder's name ends in
    "/"; an object that lies in no such folder comes with its own name."""
    after = prefix
    while page := await store.list(prefix, start_after=after, limit=1):
        name = page[0].key.removeprefix(prefix)
        if found := re.match(pattern, name):
            name = found.group()
        yield name, page[0]
        after = f"{prefix}{name[:-1]}{_AFTER_SLASH}" if found else page[0].key


def shard_of_folder(name: str) -> int | None:
    """The shard whose folder `name` is; None for another name."""
    return int(name[:-1]) if re.fullmatch(r"\d{4,}/", name) and name == f"{int(name[:-1]):04d}/" else None


async def shards_in(store: ObjectStore) -> Sequence[int]:
    """The shards that have a log or a manifest, ascending. One request for each folder. Raises `Corrupt` if there are
    more than `SHARDS_MAX`."""
    found: set[int] = set()
    for prefix in (WAL_PREFIX, MANIFESTS_PREFIX):
        async for name, _ in folders(store, prefix):
            if (shard := shard_of_folder(name)) is not None:
                found.add(shard)
            if len(found) > SHARDS_MAX:
                raise Corrupt(prefix, f"has folders of more than {SHARDS_MAX} shards: remove those of other programs")
    return sorted(found)


async def group_journals(store: ObjectStore) -> AsyncIterator[str]:
    """The names of the journals of groups that have at least one object, ascending."""
    async for name, _ in folders(store, GROUPS_PREFIX):
        if name == f"{EMBEDDED_GROUPS}/" or shard_of_folder(name) is not None:
            yield name[:-1]


async def topics_in(store: ObjectStore) -> AsyncIterator[tuple[str, str]]:
    """Name and id of the topics that have at least one object."""
    async for folder, _ in folders(store, TOPICS_PREFIX, "[^/]+/[^/]+/"):
        if folder.endswith("/"):
            name, topic_id, _ = folder.split("/")
            yield name, topic_id


async def stored_bytes(store: ObjectStore) -> int:
    """The size of all objects of the bucket together, by a full listing."""
    size_bytes = 0
    async for info in list_all(store, ""):
        size_bytes += info.size
    return size_bytes


async def is_there(store: ObjectStore, key: str) -> bool:
    """Whether an object that was listed still exists: it may have been collected since."""
    try:
        await store.head(key)
    except NotFound:
        return False
    return True


@dataclass(frozen=True)
class SegmentPage:
    """Listed segments of a topic in a shard, ascending by key. It has all of them between `after` and its last one;
    `whole`: and all that follow."""

    place: SegmentPlace
    infos: tuple[ObjectInfo, ...]
    after: str = ""
    whole: bool = True

    @property
    def end(self) -> str:
        """No later page has a key up to here."""
        return _end(self.place) if self.whole else self.infos[-1].key


async def list_segments(
    store: ObjectStore, expected: Iterable[SegmentPlace] = (), *, start_after: str = ""
) -> AsyncIterator[SegmentPage | ObjectInfo]:
    """All segments, by topic and shard; between them, each object under ``topics/`` that is no segment. Each of
    `expected` that has no object comes as an empty page. One request per page of the bucket's listing.

    To continue after an interruption, give the `end` of the last page as `start_after`.
    """
    waiting = sorted((place for place in expected if _end(place) > start_after), key=_prefix, reverse=True)
    async for item in _pages(store, start_after):
        while isinstance(item, SegmentPage) and waiting and _prefix(waiting[-1]) <= _prefix(item.place):
            if (place := waiting.pop()) != item.place:
                yield _page(place, start_after)
        yield item
    for place in reversed(waiting):
        yield _page(place, start_after)


async def _pages(store: ObjectStore, start_after: str) -> AsyncIterator[SegmentPage | ObjectInfo]:
    page: SegmentPage | None = None
    async for place, infos in grouped(list_all(store, TOPICS_PREFIX, start_after=start_after), _place_of):
        follows = page is not None and page.place == place
        if page:
            yield replace(page, whole=not follows)
            start_after = page.infos[-1].key if follows else start_after
        page = _page(place, start_after, infos) if place else None
        for info in () if place else infos:
            yield info
    if page:
        yield page


async def grouped(
    listed: AsyncIterable[ObjectInfo], of: Callable[[str], A]
) -> AsyncIterator[tuple[A, tuple[ObjectInfo, ...]]]:
    """Neighbouring objects whose keys are `of` the same, at most a page of a listing at a time."""
    group: list[ObjectInfo] = []
    async for info in listed:
        if group and (of(group[0].key) != of(info.key) or len(group) == LIST_PAGE_MAX):
            yield of(group[0].key), tuple(group)
            group = []
        group.append(info)
    if group:
        yield of(group[0].key), tuple(group)


def _place_of(key: str) -> SegmentPlace | None:
    name = shard_segment_name(key)
    return SegmentPlace(name.topic, name.topic_id, name.shard) if name else None


def _page(place: SegmentPlace, start_after: str, infos: tuple[ObjectInfo, ...] = ()) -> SegmentPage:
    return SegmentPage(place, infos, start_after if start_after.startswith(_prefix(place)) else "")


def _prefix(place: SegmentPlace) -> str:
    return shard_segment_prefix(place.topic, place.topic_id, place.shard)


def _end(place: SegmentPlace) -> str:
    """It sorts after all keys of the place, and before those of the next one."""
    return f"{_prefix(place)}{_AFTER_ALL}"
