"""All topics as groups see them: ids, numbers of partitions, and the zones of the partitions' leaders.

A machine recognizes a change of topics by the identity of the mapping. So it is made anew only if a topic or a zone has
changed, and a topic that is unchanged keeps its `TopicInfo`. While all leaders are in one zone, no zones are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog.coordinator.groups.group_step import TopicInfo, Topics
from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.topics import Topics as KnownTopics
from tidelog.storage.runtime import Clock

ZONES_S = 1.0
"""Zones are read this often. They only break ties."""

ZonesOfShards = Callable[[], Mapping[int, str]]
"""The zone of the leader of each shard that has one."""


class GroupTopics:
    def __init__(self, known: KnownTopics, clock: Clock) -> None:
        self._known = known
        self._clock = clock
        self._read_zones: ZonesOfShards = dict
        self._zones: Mapping[int, str] = {}
        self._zones_at_s = float("-inf")
        self._seen: tuple[int, Mapping[int, str]] | None = None
        self._described: dict[str, tuple[Topic, TopicInfo]] = {}
        self._topics: Topics = {}

    def know_zones(self, read_zones: ZonesOfShards) -> None:
        """From now on leaders have zones."""
        self._read_zones = read_zones

    def now(self) -> Topics:
        """All topics by name; the same object while nothing has changed."""
        now_s = self._clock.monotonic()
        if now_s - self._zones_at_s >= ZONES_S:
            self._zones_at_s = now_s
            self._zones = _if_different(self._read_zones())
        seen = (self._known.revision, self._zones)
        if seen != self._seen:
            if self._seen is None or seen[1] != self._seen[1]:
                self._described = {}
            self._seen = seen
            self._read()
        return self._topics

    def _read(self) -> None:
        topics = self._known.all()
        before, self._described = self._described, {}
        for topic in topics:
            kept = before.get(topic.name)
            info = kept[1] if kept and kept[0] is topic else self._info(topic)
            self._described[topic.name] = (topic, kept[1] if kept and kept[1] == info else info)
        found = {name: info for name, (_, info) in self._described.items()}
        if found != self._topics:
            self._topics = found

    def _info(self, topic: Topic) -> TopicInfo:
        zones: Sequence[str] = tuple(self._zones.get(shard, "") for shard in topic.shards) if self._zones else ()
        return TopicInfo(topic.topic_id, topic.partition_count, zones)


def _if_different(zones: Mapping[int, str]) -> Mapping[int, str]:
    """`zones`, or nothing if there is only one."""
    return zones if len(set(zones.values())) > 1 else {}
