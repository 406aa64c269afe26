"""Topics as groups see them: a new mapping exactly when a topic or a zone has changed."""

from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.set_clock import SetClock

from tidelog.services.broker.groups.group_topics import ZONES_S, GroupTopics
from tidelog.storage.stores.memory import MemoryObjectStore


async def test_topics_are_the_same_object_until_one_changes() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "web", 2, {})
        topics = GroupTopics(broker.known_topics, SetClock())
        first = topics.now()
        assert first["web"].partitions == 2
        await broker.alter_topic(ANYBODY, "web", None, {"retention.ms": "1000"})
        assert topics.now() is first
        await broker.create_topic(ANYBODY, "app", 1, {})
        second = topics.now()
        assert second is not first
        assert second["web"] is first["web"]


async def test_zones_of_leaders_are_given_once_there_are_two() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "web", 2, {})
        zones, clock = {0: "a", 1: "a"}, SetClock()
        topics = GroupTopics(broker.known_topics, clock)
        topics.know_zones(lambda: dict(zones))
        assert topics.now()["web"].zones == ()
        zones[1] = "b"
        clock.ahead_s += ZONES_S
        assert sorted(topics.now()["web"].zones) == ["a", "b"]
        before = topics.now()
        clock.ahead_s += ZONES_S
        assert topics.now() is before
