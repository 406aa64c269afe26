"""The topics of a cluster. Each change is written to the journal, so it is durable when `Catalog` returns.

The catalog chooses a partition's shard when it creates the partition (`place`); the shard never changes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from tidelog.coordinator.journal import Change, Delete, Journal, Put
from tidelog.coordinator.topics.topic import Topic, TopicConfig, TopicLimits, checked_topic_name
from tidelog.storage.errors import AlreadyExists, Corrupt, Invalid, NotFound
from tidelog.storage.runtime import Runtime

_PREFIX = "topics/"
REMOVALS_PREFIX = "removals/"
"""Journal keys of deleted topics, by id, until their objects are deleted."""


class _StoredTopic(msgspec.Struct, frozen=True):
    """A topic as it is stored in the journal; `config` uses Kafka's names."""

    name: str
    topic_id: str
    shards: tuple[int, ...]
    config: dict[str, str]
    created_at_ms: int


class Catalog:
    """Topics by name. Reads are from memory; `create`, `alter` and `delete` return when the change is in the bucket and
    raise `Unavailable` if this is unknown. `with_new_topic` returns changes to write along with a new topic."""

    def __init__(
        self,
        journal: Journal,
        runtime: Runtime,
        *,
        with_new_topic: Callable[[], Sequence[Change]] = tuple,
        limits: TopicLimits | None = None,
    ) -> None:
        self._with_new_topic = with_new_topic
        self._limits = limits or TopicLimits()
        self._journal = journal
        self._runtime = runtime
        self._decoded: dict[str, tuple[msgspec.Raw, Topic]] = {}
        self._by_id: dict[str, Topic] = {}
        self._by_id_at = -1

    def get(self, name: str) -> Topic:
        """Raises `NotFound`, or `Invalid` for a name that no topic can have."""
        if topic := self._find(checked_topic_name(name)):
            return topic
        raise NotFound(f"there is no topic {name!r}: create it first")

    def list_topics(self) -> Sequence[Topic]:
        """All topics, by name."""
        return tuple(self._decode(key, raw) for key, raw in self._journal.items(_PREFIX))

    @property
    def revision(self) -> int:
        """Changes whenever a topic changes."""
        return self._journal.next_number

    def with_id(self, topic_id: str) -> Topic | None:
        """The topic with that id, None if it was deleted."""
        if self._by_id_at != self.revision:
            self._by_id = {topic.topic_id: topic for topic in self.list_topics()}
            self._by_id_at = self.revision
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: str) -> str | None:
        """The name of the topic with that id, None if it was deleted."""
        topic = self.with_id(topic_id)
        return topic.name if topic else None

    async def create(
        self, name: str, partitions: int, configs: Mapping[str, str | int | None], *, shard_count: int
    ) -> Topic:
        """Raises `AlreadyExists`, `Invalid`, `Unavailable`."""
        checked_topic_name(name)
        config = TopicConfig().altered(configs)
        topic_id, created_at_ms = self._runtime.entropy.new_id(), self._runtime.clock.now_ms()

        def decide() -> Sequence[Change]:
            found = self._find(name)
            if found and found.topic_id == topic_id:
                return ()  # our own create; its answer was lost
            if found:
                raise AlreadyExists(f"there is a topic {name!r} already")
            existing = self.list_topics()
            self._limits.check_new(existing, partitions)
            shards = place(partitions, shard_count, existing)
            return _put(_PREFIX + name, Topic(name, topic_id, shards, config, created_at_ms)), *self._with_new_topic()

        await self._journal.update(decide)
        return self.get(name)

    async def alter(
        self, name: str, partitions: int | None, configs: Mapping[str, str | int | None], *, shard_count: int
    ) -> Topic:
        """Change settings and add partitions. Raises `NotFound`, `Invalid`, `Unavailable`."""

        def decide() -> Sequence[Change]:
            topic = self.get(name)
            after = replace(
                topic, config=topic.config.altered(configs), shards=self._grown(topic, partitions, shard_count)
            )
            return (_put(_PREFIX + name, after),) if after != topic else ()

        await self._journal.update(decide)
        return self.get(name)

    async def delete(self, name: str) -> Topic:
        """Delete the topic and return it; its objects still have to be deleted (`removals`). Raises `NotFound`,
        `Invalid`, `Unavailable`."""
        topic = self.get(name)

        def decide() -> Sequence[Change]:
            found = self._find(name)
            if not found or found.topic_id != topic.topic_id:
                return ()
            return Delete(_PREFIX + name), _put(REMOVALS_PREFIX + topic.topic_id, topic)

        await self._journal.update(decide)
        return topic

    def removals(self) -> Sequence[Topic]:
        """Deleted topics whose objects may still be in the bucket."""
        return tuple(_decoded(key, raw) for key, raw in self._journal.items(REMOVALS_PREFIX))

    async def removed(self, topic: Topic) -> None:
        """Record that the objects of a deleted topic are deleted. Raises `Unavailable`."""
        key = REMOVALS_PREFIX + topic.topic_id
        await self._journal.update(lambda: (Delete(key),) if self._journal.get(key) is not None else ())

    def _grown(self, topic: Topic, partitions: int | None, shard_count: int) -> tuple[int, ...]:
        if partitions is None:
            return topic.shards
        existing = self.list_topics()
        self._limits.check_grown(existing, topic, partitions)
        if (added := partitions - topic.partition_count) < 0:
            raise Invalid(
                f"{topic.name} has {topic.partition_count} partitions, and it cannot have fewer", field="partitions"
            )
        return topic.shards + place(added, shard_count, existing)

    def _find(self, name: str) -> Topic | None:
        raw = self._journal.get(_PREFIX + name)
        if raw is None:
            self._decoded.pop(_PREFIX + name, None)
            return None
        return self._decode(_PREFIX + name, raw)

    def _decode(self, key: str, raw: msgspec.Raw) -> Topic:
        known = self._decoded.get(key)
        if known and known[0] is raw:
            return known[1]
        topic = _decoded(key, raw)
        self._decoded[key] = (raw, topic)
        return topic


def place(partition_count: int, shard_count: int, topics: Iterable[Topic]) -> tuple[int, ...]:
    """Shards for `partition_count` new partitions beside those of `topics`. Each partition goes to the shard that has
    the fewest partitions, among equals to the one with the lowest number."""
    taken = Counter(shard for topic in topics for shard in topic.shards)
    fewest = [(taken[shard], shard) for shard in range(shard_count)]
    heapq.heapify(fewest)
    placed = []
    for _ in range(partition_count):
        count, shard = fewest[0]
        placed.append(shard)
        heapq.heapreplace(fewest, (count + 1, shard))
    return tuple(placed)


def _put(key: str, topic: Topic) -> Put:
    stored = _StoredTopic(topic.name, topic.topic_id, topic.shards, topic.config.as_kafka(), topic.created_at_ms)
    return Put(key, msgspec.Raw(msgspec.json.encode(stored)))


def _decoded(key: str, raw: msgspec.Raw) -> Topic:
    try:
        stored = msgspec.json.decode(raw, type=_StoredTopic)
        config = TopicConfig().altered(stored.config)
    except (msgspec.DecodeError, Invalid) as error:
        raise Corrupt(f"meta/ {key}", f"is no topic: {error}") from error
    return Topic(stored.name, stored.topic_id, stored.shards, config, stored.created_at_ms)
