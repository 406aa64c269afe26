"""Inputs for assignors, and the best assignment by trying all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from hypothesis import strategies as st

from tidelog.coordinator.groups.assignors.assignment import (
    Assignment,
    AssignmentInput,
    Partition,
    Subscriber,
)
from tidelog.coordinator.groups.group_step import TopicInfo

ZONES = ("", "a", "b")


def topics_of(**partitions: int) -> dict[str, TopicInfo]:
    return {name: TopicInfo(f"id-{name}", count) for name, count in partitions.items()}


def subscriber(member_id: str, *topics: str, owned: Sequence[tuple[str, int]] = (), rack: str = "") -> Subscriber:
    return Subscriber(member_id, frozenset(topics), frozenset(Partition(*each) for each in owned), member_id, rack)


def given_to(task: AssignmentInput) -> dict[Partition, list[str]]:
    """Each partition to assign and the members that may have it."""
    return {
        Partition(name, number): [m.member_id for m in task.subscribers if name in m.topics]
        for name, info in task.topics.items()
        for number in range(info.partitions)
        if any(name in m.topics for m in task.subscribers)
    }


def squares(assignment: Assignment) -> int:
    return sum(len(partitions) ** 2 for partitions in assignment.values())


def moves_in(task: AssignmentInput, assignment: Assignment) -> int:
    """Partitions that leave an owner that could have kept them."""
    may = given_to(task)
    return sum(
        partition not in assignment[m.member_id]
        for m in task.subscribers
        for partition in m.owned
        if m.member_id in may.get(partition, ())
    )


def best(task: AssignmentInput) -> tuple[int, int]:
    """The least sum of squares, and the fewest moves for it, of all assignments."""
    may = given_to(task)
    found = []
    for members in product(*may.values()):
        made: dict[str, set[Partition]] = {m.member_id: set() for m in task.subscribers}
        for partition, member_id in zip(may, members, strict=True):
            made[member_id].add(partition)
        assignment = {member_id: frozenset(mine) for member_id, mine in made.items()}
        found.append((squares(assignment), moves_in(task, assignment)))
    return min(found)


@st.composite
def inputs(draw: st.DrawFn, *, assignors: Sequence[str], members: int = 4, partitions: int = 7) -> AssignmentInput:
    """Small inputs; members may own partitions of topics that are gone or not subscribed to."""
    names = "tuv"[: draw(st.integers(1, 3))]
    topics: dict[str, TopicInfo] = {}
    for name in names:
        count = draw(st.integers(0, partitions))
        partitions -= count
        topics[name] = TopicInfo(f"id-{name}", count, draw(st.lists(st.sampled_from(ZONES), max_size=count)))
    ids = [f"m{n}" for n in range(draw(st.integers(1, members)))]
    everything = [Partition(name, n) for name in [*names, "gone"] for n in range(4)]
    owners = draw(st.lists(st.sampled_from([*ids, None]), min_size=len(everything), max_size=len(everything)))
    owned: Mapping[str, set[Partition]] = {member_id: set() for member_id in ids}
    for partition, owner in zip(everything, owners, strict=True):
        if owner is not None:
            owned[owner].add(partition)
    same = draw(st.booleans())
    subscription = st.frozensets(st.sampled_from(sorted({*names, "absent"})))
    shared = draw(subscription)
    return AssignmentInput(
        draw(st.sampled_from(assignors)),
        tuple(
            Subscriber(
                member_id,
                shared if same else draw(subscription),
                frozenset(owned[member_id]),
                draw(st.sampled_from(["", "x", "y"])),
                draw(st.sampled_from(ZONES)),
            )
            for member_id in ids
        ),
        topics,
    )
