"""Walks over the keys of a bucket: folders, shards, topics, partitions.

`folders` and the walks made of it cost one request per folder, however many objects the folder holds.
`list_segments` lists every object under ``topics/``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace

from tidelog.storage.errors import NotFound
from tidelog.storage.layout import (
    EMBEDDED_GROUPS,
    GROUPS_PREFIX,
    MANIFESTS_PREFIX,
    TOPICS_PREFIX,
    WAL_PREFIX,
    shard_segment_name,
    shard_segment_prefix,
    topic_prefix,
)
from tidelog.storage.object_store import LIST_PAGE_MAX, ObjectInfo, ObjectStore, list_all

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


async def shards_in(store: ObjectStore) -> AsyncIterator[int]:
    """The shards that have a log or a manifest, ascending. One request for each folder."""
    found = set()
    for prefix in (WAL_PREFIX, MANIFESTS_PREFIX):
        async for name, _ in folders(store, prefix):
            if re.fullmatch(r"\d{4,}/", name):
                found.add(int(name[:-1]))
    for shard in sorted(found):
        yield shard


async def group_journals(store: ObjectStore) -> AsyncIterator[str]:
    """The names of the journals of groups that have at least one object, ascending."""
    async for name, _ in folders(store, GROUPS_PREFIX):
        if name == f"{EMBEDDED_GROUPS}/" or re.fullmatch(r"\d{4,}/", name):
            yield name[:-1]


async def topics_in(store: ObjectStore) -> AsyncIterator[TopicName]:
    """The topics that have at least one object."""
    async for name, _ in folders(store, TOPICS_PREFIX, "[^/]+/[^/]+/"):
        if name.endswith("/"):
            topic, topic_id, _ = name.split("/")
            yield TopicName(topic, topic_id)


async def stored_bytes(store: ObjectStore) -> int:
    """The size of all objects of the bucket together, by a full listing."""
    return sum([info.size async for info in list_all(store, "")])


async def is_there(store: ObjectStore, key: str) -> bool:
    """Whether an object that was listed still exists: it may have been collected since."""
    try:
        await store.head(key)
    except NotFound:
        return False
    return True


@dataclass(frozen=True, order=True)
class TopicName:
    """A topic by name and id, which together make the prefix of its objects."""

    topic: str
    topic_id: str

    @property
    def prefix(self) -> str:
        return topic_prefix(self.topic, self.topic_id)


@dataclass(frozen=True, order=True)
class TopicFolder:
    """The part of a topic's folder that belongs to one shard."""

    name: TopicName
    shard: int

    @property
    def prefix(self) -> str:
        return shard_segment_prefix(self.name.topic, self.name.topic_id, self.shard)

    @property
    def end(self) -> str:
        """It sorts after all keys of the folder's part, and before those of the next one."""
        return f"{self.prefix}{_AFTER_ALL}"


@dataclass(frozen=True)
class SegmentPage:
    """Listed segments of a topic in a shard, ascending by key. It has all of them between `after` and its last one;
    `whole`: and all that follow."""

    place: TopicFolder
    infos: tuple[ObjectInfo, ...]
    after: str = ""
    whole: bool = True

    @property
    def end(self) -> str:
        """No later page has a key up to here."""
        return self.place.end if self.whole else self.infos[-1].key


async def list_segments(
    store: ObjectStore, expected: Collection[TopicFolder] = (), *, start_after: str = ""
) -> AsyncIterator[SegmentPage | ObjectInfo]:
    """All segments, by topic and shard; between them, each object under ``topics/`` that is no segment. Each of
    `expected` that has no object comes as an empty page. One request per page of the bucket's listing.

    To continue after an interruption, give the `end` of the last page as `start_after`.
    """
    waiting = sorted((place for place in expected if place.end > start_after), key=_prefix, reverse=True)

    def empty(place: TopicFolder) -> SegmentPage:
        return SegmentPage(place, (), _begun(place, start_after))

    async for item in _pages(store, start_after):
        while isinstance(item, SegmentPage) and waiting and waiting[-1].prefix <= item.place.prefix:
            if (place := waiting.pop()) != item.place:
                yield empty(place)
        yield item
    for place in reversed(waiting):
        yield empty(place)


async def _pages(store: ObjectStore, start_after: str) -> AsyncIterator[SegmentPage | ObjectInfo]:
    page: SegmentPage | None = None
    infos: list[ObjectInfo] = []
    async for info in list_all(store, TOPICS_PREFIX, start_after=start_after):
        name = shard_segment_name(info.key)
        place = TopicFolder(TopicName(name.topic, name.topic_id), name.shard) if name else None
        if page and (page.place != place or len(infos) == LIST_PAGE_MAX):
            yield replace(page, infos=tuple(infos), whole=page.place != place)
            page = replace(page, after=infos[-1].key) if page.place == place else None
            infos = []
        if place is None:
            yield info
            continue
        page = page or SegmentPage(place, (), _begun(place, start_after))
        infos.append(info)
    if page:
        yield replace(page, infos=tuple(infos))


def _begun(place: TopicFolder, start_after: str) -> str:
    return start_after if start_after.startswith(place.prefix) else ""


def _prefix(place: TopicFolder) -> str:
    return place.prefix
