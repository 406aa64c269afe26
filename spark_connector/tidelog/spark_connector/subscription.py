"""Which topics and partitions a read takes: subscribe, assign or subscribePattern, and what they stand for now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from msgspec import Meta

from tidelog.spark_connector.broker_connection import BrokerConnection
from tidelog.spark_connector.option_text import members_of_json
from tidelog.spark_connector.slices import TopicRef
from tidelog.storage.errors import Invalid, NotFound
from tidelog.wire.topics import ListedTopic, TopicDescription

SUBSCRIPTIONS = ("subscribe", "assign", "subscribePattern")

PartitionNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=10**9)]


@dataclass(frozen=True)
class TopicNames:
    """All partitions of these topics."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TopicPattern:
    """All partitions of the topics whose whole name matches."""

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Assignment:
    """These (topic, partition) pairs."""

    partitions: tuple[tuple[str, int], ...]


Subscription: TypeAlias = TopicNames | TopicPattern | Assignment


def parse_subscription(options: Mapping[str, str]) -> Subscription:
    chosen = [name for name in SUBSCRIPTIONS if name in options]
    if len(chosen) != 1:
        found = " and ".join(chosen) if chosen else "none"
        raise Invalid(f"give exactly one of {', '.join(SUBSCRIPTIONS)}; found {found}", field="subscribe")
    text = options[chosen[0]]
    if chosen[0] == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not names:
            raise Invalid("subscribe names no topic: give their names, separated by commas", field="subscribe")
        return TopicNames(names)
    return _pattern(text) if chosen[0] == "subscribePattern" else _assignment(text)


def _pattern(text: str) -> TopicPattern:
    try:
        return TopicPattern(re.compile(text))
    except re.error as error:
        raise Invalid(
            f"subscribePattern {text!r} is not a regular expression: {error}", field="subscribePattern"
        ) from None


def _assignment(text: str) -> Assignment:
    form = 'assign is JSON such as {"topic": [0, 1]}'
    members = members_of_json(text, list[PartitionNumber], form, "assign")
    named = [(topic, number) for topic, numbers in members for number in numbers]
    if not named:
        raise Invalid(f"{form}; it names no partition", field="assign")
    return Assignment(tuple(dict.fromkeys(named)))


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
