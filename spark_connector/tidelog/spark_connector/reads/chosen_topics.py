"""What a subscription stands for now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.spark_connector.options.subscription import Assignment, Subscription, TopicNames
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.slices import TopicRef
from tidelog.storage.errors import NotFound
from tidelog.wire.topics import ListedTopic, TopicDescription


def chosen_topics(subscription: Subscription, connection: BrokerConnection) -> list[tuple[TopicRef, Sequence[int]]]:
    """The topics of a subscription with the partitions that are read, as they are now. Raises `NotFound`."""
    if isinstance(subscription, Assignment):
        return _assigned(subscription, connection)
    topics: Iterable[TopicDescription | ListedTopic]
    if isinstance(subscription, TopicNames):
        topics = [connection.topic(name) for name in subscription.names]
    else:
        topics = [topic for topic in connection.topics() if subscription.pattern.fullmatch(topic.name)]
    return [(TopicRef.of(topic), range(len(topic.partitions))) for topic in topics]


def _assigned(assignment: Assignment, connection: BrokerConnection) -> list[tuple[TopicRef, Sequence[int]]]:
    chosen: list[tuple[TopicRef, Sequence[int]]] = []
    for name in dict.fromkeys(topic for topic, _ in assignment.partitions):
        topic = connection.topic(name)
        numbers = tuple(partition for of, partition in assignment.partitions if of == name)
        if (largest := max(numbers)) >= len(topic.partitions):
            raise NotFound(f"topic {name} has no partition {largest}: it has {len(topic.partitions)}, from 0")
        chosen.append((TopicRef.of(topic), numbers))
    return chosen
