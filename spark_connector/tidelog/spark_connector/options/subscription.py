"""Which topics and partitions a read takes: subscribe, assign or subscribePattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from msgspec import Meta

from tidelog.spark_connector.options.option_text import members_of_json
from tidelog.storage.errors import Invalid

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
