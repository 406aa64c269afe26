"""Walks over the keys of a bucket: folders, shards, topics, partitions.

`folders` and the walks made of it cost one request per folder, however many objects the folder holds.
`list_partitions` lists every object under ``topics/``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tidelog.storage.errors import NotFound
from tidelog.storage.layout import (
    EMBEDDED_GROUPS,
    GROUPS_PREFIX,
    TOPICS_PREFIX,
    WAL_PREFIX,
    TopicPartition,
    topic_prefix,
)
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.upkeep.task import Place

_AFTER_SLASH = "0"
"""The character after "/": a folder's name without its slash and with this sorts after all objects of the folder."""
_TOPIC = re.compile(
    r"topics/(?P<topic>[^/]+)/(?P<topic_id>[^/]+)/"
    r"(?:_manifest/(?P<manifest_of>\d{5,})/(?:\d{20}\.json|_history/.+)|partition=(?P<partition>\d+)/.+)"
)


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
    """The shards that have at least one object, ascending."""
    async for name, _ in folders(store, WAL_PREFIX):
        if re.fullmatch(r"\d+/", name):
            yield int(name[:-1])


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


async def archived_partitions(store: ObjectStore) -> AsyncIterator[Place]:
    """Every partition that has a manifest. One request per partition and one per topic, because a topic's manifests
    sort before its segments."""
    async for name, _ in folders(store, TOPICS_PREFIX, r"[^/]+/[^/]+/(_manifest/\d{5,}/)?"):
        if found := re.fullmatch(r"([^/]+)/([^/]+)/_manifest/(\d+)/", name):
            yield Place(found[1], TopicPartition(found[2], int(found[3])))


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


@dataclass
class PartitionListing:
    """The listed objects of one partition: its segments (and any other object beside them) by key, ascending, and the
    number and size of its manifests."""

    name: TopicName
    partition: int
    segments: dict[str, ObjectInfo] = field(default_factory=dict)
    manifests: int = 0
    manifest_bytes: int = 0

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.name.topic_id, self.partition)


Listed = PartitionListing | ObjectInfo


async def list_partitions(store: ObjectStore, *, from_topic: TopicName | None = None) -> AsyncIterator[Listed]:
    """Every partition that has at least one object, topic by topic, from `from_topic` on; and, between them, each
    object under ``topics/`` that belongs to no partition.

    Keys sort by topic, and a topic's manifests sort before its segments. So one pass over the listing gives the
    segments of a partition together. Memory is that of one partition's listing and of a topic's partition numbers.
    """
    start_after = from_topic.prefix.rstrip("/") if from_topic else ""
    name: TopicName | None = None
    waiting: dict[int, PartitionListing] = {}  # partitions whose manifests were listed and whose segments were not
    current: PartitionListing | None = None
    async for info in list_all(store, TOPICS_PREFIX, start_after=start_after):
        found = _TOPIC.fullmatch(info.key)
        if found is None:
            yield info
            continue
        of = TopicName(found["topic"], found["topic_id"])
        partition = int(found["manifest_of"] or found["partition"])
        if current is not None and (of != name or partition != current.partition or found["manifest_of"]):
            yield current
            current = None
        if of != name:
            for listing in waiting.values():
                yield listing
            name, waiting = of, {}
        if found["manifest_of"]:
            listing = waiting.setdefault(partition, PartitionListing(of, partition))
            listing.manifests += 1
            listing.manifest_bytes += info.size
            continue
        if current is None:
            current = waiting.pop(partition, None) or PartitionListing(of, partition)
        current.segments[info.key] = info
    if current is not None:
        yield current
    for listing in waiting.values():
        yield listing
