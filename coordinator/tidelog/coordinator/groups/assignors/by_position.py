"""The assignors `range` and `roundrobin`: a member's place among the members decides which partitions it reads.

Neither looks at the partitions that members own now, so a member that joins or leaves may move any number of them. Use
`balanced` for few moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

from tidelog.coordinator.groups.assignors.assignment import (
    Assignment,
    AssignmentInput,
    Partition,
    Subscriber,
    in_order,
    subscribed_topics,
)


def assign_range(task: AssignmentInput) -> Assignment:
    """Cut each topic into contiguous ranges whose sizes differ by one at most, the larger ones first. So
    members of equal subscription differ by one partition at most in each topic, and topics with equal numbers of
    partitions are cut alike, which joins rely on."""
    members = in_order(task.subscribers)
    assigned: dict[str, list[Partition]] = {member.member_id: [] for member in members}
    for topic in subscribed_topics(task):
        _cut(topic, task.topics[topic].partitions, [m for m in members if topic in m.topics], assigned)
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _cut(topic: str, partitions: int, members: Sequence[Subscriber], assigned: dict[str, list[Partition]]) -> None:
    size, larger = divmod(partitions, len(members))
    first = 0
    for place, member in enumerate(members):
        end = first + size + (place < larger)
        assigned[member.member_id] += [Partition(topic, number) for number in range(first, end)]
        first = end


def assign_round_robin(task: AssignmentInput) -> Assignment:
    """Give each partition, in order of topic and number, to the next of the least loaded subscribers of its topic. If
    all members subscribe to the same topics, this is Kafka's round robin. If they do not, Kafka's may load one member
    far more than another of equal subscription; here they differ by one partition at most."""
    members = in_order(task.subscribers)
    assigned: dict[str, list[Partition]] = {member.member_id: [] for member in members}
    turn_of = {member.member_id: place for place, member in enumerate(members)}
    for topic in subscribed_topics(task):
        lists = [(member.member_id, assigned[member.member_id]) for member in members if topic in member.topics]
        turns = sorted((len(partitions), turn_of[member_id], member_id) for member_id, partitions in lists)
        for number, member_id in enumerate(_in_turn(turns, task.topics[topic].partitions)):
            assigned[member_id].append(Partition(topic, number))
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _in_turn(turns: list[tuple[int, int, str]], count: int) -> list[str]:
    """The least loaded member, `count` times; `turns` is a heap of (load, place, member id)."""
    chosen: list[str] = []
    for _ in range(count):
        load, place, member_id = turns[0]
        chosen.append(member_id)
        heapreplace(turns, (load + 1, place, member_id))
    return chosen
