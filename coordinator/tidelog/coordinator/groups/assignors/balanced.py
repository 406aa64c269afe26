"""The assignor `uniform`, also known as `sticky` and `cooperative-sticky`: even loads, then the fewest moves.

In this order:

1. Balance: the sum of the squares of the members' loads is the least possible. So members of equal subscription differ
   by one partition at most, and no chain of moves could take a partition from a member to one that has two fewer.
2. Moves: among those assignments, the fewest partitions leave a member that owns them now.
3. Zones: a member whose `rack` is the zone of a partition's leader is preferred when a partition moves or has no owner,
   and when a member has to give up some of its partitions. This costs neither balance nor moves: a partition that may
   stay is not moved to a nearer member.

Partitions of topics with the same subscribers are interchangeable for 1 and 2. So the assignor counts: it decides how
many partitions of each such *pool* every member gets (`pool_counts`), then which ones (`dealing`). Both 1 and 2 are
exact, but for groups with very many different subscriptions: see `pool_counts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tidelog.coordinator.groups.assignors.assignment import (
    Assignment,
    AssignmentInput,
    Partition,
    Subscriber,
    in_order,
    subscribed_topics,
)
from tidelog.coordinator.groups.assignors.dealing import Zones, choose_partitions
from tidelog.coordinator.groups.assignors.pool_counts import Pools, balanced_counts

_Held: TypeAlias = list[dict[int, set[Partition]]]
"""The partitions that a member owns now, by pool and member."""


def assign_balanced(task: AssignmentInput) -> Assignment:
    """See the head of the module."""
    members = in_order(task.subscribers)
    pools = _topics_of_pools(task, members)
    if not pools:
        return {member.member_id: frozenset() for member in members}
    held = _held(task, members, pools)
    counts = balanced_counts(_counted(task, pools, held))
    zones = Zones(tuple(member.rack for member in members), {name: info.zones for name, info in task.topics.items()})
    chosen: list[list[Partition]] = [[] for _ in members]
    for pool, (_, topics) in enumerate(pools):
        partitions = [Partition(topic, n) for topic in topics for n in range(task.topics[topic].partitions)]
        shares = {int(number): int(counts[pool, number]) for number in np.flatnonzero(counts[pool])}
        choose_partitions(partitions, held[pool], shares, zones, chosen)
    return {member.member_id: frozenset(mine) for member, mine in zip(members, chosen, strict=True)}


_Pool: TypeAlias = tuple[tuple[int, ...], list[str]]
"""Topics with the same subscribers: the members by number, and the topics by name."""


def _topics_of_pools(task: AssignmentInput, members: Sequence[Subscriber]) -> list[_Pool]:
    pools: dict[tuple[int, ...], list[str]] = {}
    subscriptions = [member.topics for member in members]
    alike = len(set(subscriptions)) == 1
    everybody = tuple(range(len(members)))
    for topic in subscribed_topics(task):
        who = everybody if alike else tuple(n for n, topics in enumerate(subscriptions) if topic in topics)
        pools.setdefault(who, []).append(topic)
    return list(pools.items())


def _held(task: AssignmentInput, members: Sequence[Subscriber], pools: Sequence[_Pool]) -> _Held:
    """A partition that two members claim is the first one's, as none may have two owners."""
    pool_of = {topic: number for number, (_, topics) in enumerate(pools) for topic in topics}
    held: _Held = [{} for _ in pools]
    taken: set[Partition] = set()
    for number, member in enumerate(members):
        for partition in member.owned:
            if _may_keep(task, member, partition) and partition not in taken:
                taken.add(partition)
                held[pool_of[partition.topic]].setdefault(number, set()).add(partition)
    return held


def _may_keep(task: AssignmentInput, member: Subscriber, partition: Partition) -> bool:
    info = task.topics.get(partition.topic)
    return info is not None and partition.topic in member.topics and partition.number < info.partitions


def _counted(task: AssignmentInput, pools: Sequence[_Pool], held: _Held) -> Pools:
    shape = (len(pools), len(task.subscribers))
    sizes = [sum(task.topics[topic].partitions for topic in topics) for _, topics in pools]
    counted = Pools(np.array(sizes, np.int64), np.zeros(shape, np.bool_), np.zeros(shape, np.int32))
    for number, (who, _) in enumerate(pools):
        counted.subscribed[number, list(who)] = True
        for member, mine in held[number].items():
            counted.held[number, member] = len(mine)
    return counted
