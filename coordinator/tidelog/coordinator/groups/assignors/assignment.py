"""The input and the output of an assignor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidelog.coordinator.groups.group_step import TopicInfo


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


@dataclass(frozen=True)
class Subscriber:
    """A member as assignors see it. `owned`: the partitions that it can have without a handover, because it reads them,
    or because no other member does. `order`: its place among the members: its instance id if it has one, which it keeps
    over restarts, else its member id."""

    member_id: str
    topics: frozenset[str]
    owned: frozenset[Partition] = frozenset()
    order: str = ""
    rack: str = ""


@dataclass(frozen=True)
class AssignmentInput:
    """`assignor`: one of `assignors.ASSIGNORS`. `topics` has every topic that a member subscribes to."""

    assignor: str
    subscribers: tuple[Subscriber, ...]
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)


Assignment: TypeAlias = Mapping[str, frozenset[Partition]]
"""The partitions of each member by its id. Every partition of a subscribed topic is in exactly one of them."""


def in_order(subscribers: Sequence[Subscriber]) -> list[Subscriber]:
    """By `order`, then by member id."""
    return sorted(subscribers, key=lambda member: (member.order or member.member_id, member.member_id))


def subscribed_topics(task: AssignmentInput) -> list[str]:
    """The topics that exist and that a member subscribes to, by name."""
    wanted = frozenset[str]().union(*(member.topics for member in task.subscribers))
    return sorted(wanted & task.topics.keys())
