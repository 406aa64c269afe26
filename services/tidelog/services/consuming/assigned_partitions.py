"""Partitions of several topics: as pairs, and grouped by topic as on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tidelog.wire.groups import TopicPartitions

Place: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""


def places_of(grouped: Iterable[TopicPartitions]) -> list[Place]:
    return [(each.topic, number) for each in grouped for number in each.partitions]


def grouped(places: Iterable[Place]) -> tuple[TopicPartitions, ...]:
    """`places` by topic, in order."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        numbers.setdefault(topic, []).append(number)
    return tuple(TopicPartitions(topic, tuple(found)) for topic, found in numbers.items())
