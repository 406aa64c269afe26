"""The lists of a shard's topics: which topics get a new one, and the lists that a process keeps in memory.

A version of the manifest stores the differences of each topic to its list (`topic_state`). The bounds here keep a
version small, whatever the number of topics, segments and partitions. Each append writes lists for few of its topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from cachetools import LRUCache
from msgspec.structs import replace

from tidelog.storage.layout import list_key
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.topic_state import ListRef, TopicBase, TopicState, decode_list, encode_list
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.single_flight import SingleFlight

DIFFERENCES_MIN = 16_384
"""Fewer differences of a topic never cause a new list. They take some 10 bytes each. With a topic of 1,000 partitions,
50 passes made versions of 87 kB on average and 162 kB at most, 3 lists, and took 18 ms of CPU time an append; with a
bound of 256 there were 26 lists, and with 65,536, versions of 505 kB."""
DIFFERENCES_SHARE = 8
"""A topic gets a new list when its differences are more than this fraction (one in 8) of it."""
VERSION_DIFFERENCES_MAX = 131_072
"""Of all topics of a version together. Beyond it, the topics with the most differences get new lists. With 1,000 topics
of one partition, 100 passes made versions of 1.1 MB, and an append took 0.31 s of CPU time and wrote 27 lists; with a
bound of 65,536, 0.65 MB, 0.23 s and 52 lists. Without a bound, it was 5.5 MB, 0.9 s and none."""
LISTS_MIN = 8
LISTS_SHARE = 8
"""An append writes at most `LISTS_MIN` lists, or one for every 8 topics that it changes if that is more. So lists add
an eighth at most to the PUTs of a pass. A pass that changes all topics beyond the bound of a version gives the eighth
with the most differences new lists, so a version holds some 8 passes at most, however many records they have."""


class TopicLists:
    """The lists of `shard`. Of those that were read or written last, `bytes_max` stored bytes are kept in memory, or
    one greater list; 0: none."""

    def __init__(self, store: ObjectStore, shard: int, runtime: Runtime, bytes_max: int) -> None:
        self._store = store
        self._shard = shard
        self._entropy = runtime.entropy
        self._kept: LRUCache[str, tuple[TopicBase, int]] = LRUCache(bytes_max, lambda kept: kept[1])
        self._reads: SingleFlight[str, TopicBase] = SingleFlight()

    async def read(self, topic_id: str, topic: TopicState) -> TopicBase:
        """The content of the list of `topic`, in one GET if it is not in memory. Raises `NotFound`, `Corrupt`."""
        stored = topic.stored
        assert stored is not None, "only a topic with a list lacks its content"
        if kept := self._kept.get(stored.key):
            return kept[0]
        return await self._reads.run(stored.key, lambda: self._read(topic_id, topic.name, stored))

    async def write(self, topic_id: str, topic: TopicState) -> TopicState:
        """The same topic with a new list, which makes its differences unnecessary."""
        key = list_key(self._shard, topic_id, self._entropy.new_id())
        base = await asyncio.to_thread(topic.consolidated)
        stored, body = await asyncio.to_thread(encode_list, key, topic.name, topic_id, self._shard, base)
        await self._store.create(key, body)
        self._keep(stored, base)
        return topic.listed(stored, base)

    def only_kept(self, manifest: ShardManifest) -> ShardManifest:
        """`manifest` without the content of lists that are not in memory here."""
        dropped = {
            topic_id: replace(topic, base=None)
            for topic_id, topic in manifest.topics.items()
            if topic.stored and topic.base and topic.stored.key not in self._kept
        }
        return replace(manifest, topics={**manifest.topics, **dropped}) if dropped else manifest

    async def _read(self, topic_id: str, name: str, stored: ListRef) -> TopicBase:
        data = (await self._store.get(stored.key)).data
        base = await asyncio.to_thread(decode_list, stored, name, topic_id, self._shard, data)
        self._keep(stored, base)
        return base

    def _keep(self, stored: ListRef, base: TopicBase) -> None:
        if self._kept.maxsize:
            self._kept[stored.key] = base, min(stored.size_bytes, int(self._kept.maxsize))


def topics_to_list(topics: Mapping[str, TopicState], changed: Collection[str]) -> Sequence[str]:
    """The topics of a version that get new lists, after a change of the topics `changed`, whose lists were read: those
    with too many differences, and then those with the most until the version is within its bound."""
    most = max(LISTS_MIN, len(changed) // LISTS_SHARE)
    grown = sorted((each for each in changed if _is_grown(topics[each])), key=lambda each: -topics[each].differences)
    chosen, left = grown[:most], sum(topic.differences for topic in topics.values())
    left -= sum(topics[each].differences for each in chosen)
    if left <= VERSION_DIFFERENCES_MAX:
        return chosen
    for topic_id in sorted(topics.keys() - set(chosen), key=lambda each: (-topics[each].differences, each)):
        if left <= VERSION_DIFFERENCES_MAX or len(chosen) == most:
            break
        chosen.append(topic_id)
        left -= topics[topic_id].differences
    return chosen


def lacks_list(manifest: ShardManifest, topic_id: str) -> bool:
    """Whether the list of a topic has to be read (`ShardLog.with_lists`)."""
    topic = manifest.topics.get(topic_id)
    return topic is not None and topic.lacks_list


def _is_grown(topic: TopicState) -> bool:
    return topic.differences > max(DIFFERENCES_MIN, topic.size // DIFFERENCES_SHARE)
