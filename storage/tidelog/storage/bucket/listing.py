"""The listing of everything under ``topics/``, a partition at a time.

Keys sort by topic, then manifests before segments, so one pass over the pages gives each partition's segments together;
of manifests only numbers are kept until their partition comes. So memory is that of one partition's listing and of
a topic's partition numbers.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tidelog.storage.layout import TOPICS_PREFIX, TopicPartition, topic_prefix
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all

_TOPIC = re.compile(
    r"topics/(?P<topic>[^/]+)/(?P<topic_id>[^/]+)/"
    r"(?:_manifest/(?P<manifest_of>\d{5,})/(?:\d{20}\.json|_history/.+)|partition=(?P<partition>\d+)/.+)"
)


@dataclass(frozen=True, order=True)
class TopicName:
    """A topic by name and id: what its objects lie under."""

    topic: str
    topic_id: str

    @property
    def prefix(self) -> str:
        return topic_prefix(self.topic, self.topic_id)


@dataclass
class PartitionListing:
    """What is listed of one partition: its segments (and whatever lies beside them) by key, ascending; how many objects
    its manifests are, and how many bytes."""

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
    """Every partition that has any object, topic by topic, from `from_topic` on; and between them, as they are, the
    objects that are no topic's."""
    start_after = from_topic.prefix.rstrip("/") if from_topic else ""
    name: TopicName | None = None
    waiting: dict[int, PartitionListing] = {}
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
