"""Assignors: complete, balanced, with the fewest moves, the same on every broker."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinator.groups.assignments import best, given_to, inputs, moves_in, squares, subscriber, topics_of

from tidelog.coordinator.groups.assignors import pool_counts
from tidelog.coordinator.groups.assignors.assign import ASSIGNORS, DEFAULT_ASSIGNOR, assign
from tidelog.coordinator.groups.assignors.assignment import Assignment, AssignmentInput, Partition
from tidelog.coordinator.groups.group_step import TopicInfo
from tidelog.storage.errors import Invalid

BALANCED = ("uniform", "sticky", "cooperative-sticky")


def test_names_are_kafkas() -> None:
    assert set(ASSIGNORS) == {"range", "roundrobin", "sticky", "cooperative-sticky", "uniform"}
    assert DEFAULT_ASSIGNOR == "uniform"


def test_unknown_assignor_is_refused_with_the_known_names() -> None:
    with pytest.raises(Invalid, match="unknown assignor 'random': use one of uniform"):
        assign(AssignmentInput("random", ()))


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_no_members_no_assignment(assignor: str) -> None:
    assert assign(AssignmentInput(assignor, (), topics_of(t=3))) == {}


@given(task=inputs(assignors=ASSIGNORS))
def test_every_partition_is_at_one_subscriber(task: AssignmentInput) -> None:
    assignment = assign(task)
    assert assignment.keys() == {m.member_id for m in task.subscribers}
    owners = [(partition, member_id) for member_id, mine in assignment.items() for partition in mine]
    may = given_to(task)
    assert sorted(partition for partition, _ in owners) == sorted(may)
    assert all(member_id in may[partition] for partition, member_id in owners)


@given(task=inputs(assignors=ASSIGNORS), seed=st.integers(0, 99))
def test_the_order_of_members_and_topics_does_not_matter(task: AssignmentInput, seed: int) -> None:
    members, topics = list(task.subscribers), list(task.topics.items())
    random.Random(seed).shuffle(members)
    random.Random(seed).shuffle(topics)
    assert assign(replace(task, subscribers=tuple(members), topics=dict(topics))) == assign(task)


@given(task=inputs(assignors=("roundrobin", *BALANCED)))
def test_members_of_equal_subscription_differ_by_one_partition_at_most(task: AssignmentInput) -> None:
    assert_even(task, assign(task))


@given(task=inputs(assignors=("range",)))
def test_range_is_contiguous_and_even_in_each_topic(task: AssignmentInput) -> None:
    assignment = assign(task)
    for topic in task.topics:
        sizes = []
        for member in task.subscribers:
            numbers = sorted(p.number for p in assignment[member.member_id] if p.topic == topic)
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
            if topic in member.topics:
                sizes.append(len(numbers))
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_range_cuts_topics_of_equal_size_alike() -> None:
    task = AssignmentInput("range", tuple(subscriber(m, "t", "u") for m in "abc"), topics_of(t=4, u=4))
    for mine in assign(task).values():
        assert {p.number for p in mine if p.topic == "t"} == {p.number for p in mine if p.topic == "u"}


def test_round_robin_goes_over_the_topics() -> None:
    task = AssignmentInput("roundrobin", (subscriber("a", "t", "u"), subscriber("b", "t", "u")), topics_of(t=3, u=3))
    assert assign(task)["a"] == {Partition("t", 0), Partition("t", 2), Partition("u", 1)}


@settings(max_examples=300)
@given(task=inputs(assignors=BALANCED, members=3, partitions=6))
def test_loads_are_the_evenest_and_moves_the_fewest(task: AssignmentInput) -> None:
    assignment = assign(task)
    assert (squares(assignment), moves_in(task, assignment)) == best(task)


@given(task=inputs(assignors=BALANCED))
def test_a_second_assignment_moves_nothing(task: AssignmentInput) -> None:
    first = assign(task)
    again = replace(task, subscribers=tuple(replace(m, owned=first[m.member_id]) for m in task.subscribers))
    assert assign(again) == first


@given(task=inputs(assignors=BALANCED))
def test_zones_cost_neither_balance_nor_moves(task: AssignmentInput) -> None:
    blind = replace(task, subscribers=tuple(replace(m, rack="") for m in task.subscribers))
    assignment, without = assign(task), assign(blind)
    assert squares(assignment) == squares(without)
    assert moves_in(task, assignment) == moves_in(blind, without)


@given(task=inputs(assignors=BALANCED))
def test_without_work_left_loads_are_still_even_among_equals(task: AssignmentInput) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_counts, "WORK_MAX", 0)
        assignment = assign(task)
    assert_even(task, assignment)
    assert sorted(p for mine in assignment.values() for p in mine) == sorted(given_to(task))


def test_a_first_assignment_reads_in_the_own_zone() -> None:
    topics = {"t": TopicInfo("id", 8, ["x", "y"] * 4)}
    task = AssignmentInput("uniform", (subscriber("m", "t", rack="x"), subscriber("n", "t", rack="y")), topics)
    assert {p.number for p in assign(task)["m"]} == {0, 2, 4, 6}


def test_a_member_gives_up_partitions_of_other_zones_first() -> None:
    topics = {"t": TopicInfo("id", 4, ["x", "y", "x", "y"])}
    owner = subscriber("m", "t", owned=[("t", n) for n in range(4)], rack="y")
    assert {p.number for p in assign(AssignmentInput("uniform", (owner, subscriber("n", "t")), topics))["m"]} == {1, 3}


def test_a_partition_that_may_stay_is_not_moved_to_a_nearer_member() -> None:
    topics = {"t": TopicInfo("id", 2, ["x", "y"])}
    far = (
        subscriber("m", "t", owned=[("t", 0)], rack="y"),
        subscriber("n", "t", owned=[("t", 1)], rack="x"),
    )
    assert assign(AssignmentInput("uniform", far, topics))["m"] == {Partition("t", 0)}


def test_a_member_that_joins_takes_no_more_than_its_share() -> None:
    """Each join moves exactly as many partitions as the new member gets."""
    members = [subscriber("m000", "t", "u")]
    for number in range(1, 40):
        members.append(subscriber(f"m{number:03}", "t", "u"))
        task = AssignmentInput("uniform", tuple(members), topics_of(t=60, u=30))
        assignment = assign(task)
        got = len(assignment[members[-1].member_id])
        assert moves_in(task, assignment) == (got if number > 1 else 0)
        members = [replace(m, owned=assignment[m.member_id]) for m in members]


def assert_even(task: AssignmentInput, assignment: Assignment) -> None:
    loads: dict[frozenset[str], list[int]] = {}
    for member in task.subscribers:
        loads.setdefault(member.topics, []).append(len(assignment[member.member_id]))
    assert all(max(each) - min(each) <= 1 for each in loads.values())
