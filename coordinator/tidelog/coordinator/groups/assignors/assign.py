"""Compute which member of a group reads which partition.

    range                               each topic cut into contiguous ranges, one for each of its subscribers
    roundrobin                          all partitions in order, each to the next subscriber in turn
    uniform, sticky, cooperative-sticky even loads, then the fewest partitions that change hands

The names are Kafka's. The last three are one algorithm (`balanced`). They differ in Kafka because its clients assign
and give up partitions themselves; here a coordinator does that, and always takes a partition from its owner before it
assigns it to another member.

`assign` is a pure function: every broker computes the same assignment from the same input, in any order of its members.
It takes up to some hundred ms for 1,000 members, so a coordinator calls it in a thread.
"""

from __future__ import annotations

from tidelog.coordinator.groups.assignors.assignment import Assignment, AssignmentInput
from tidelog.coordinator.groups.assignors.balanced import assign_balanced
from tidelog.coordinator.groups.assignors.by_position import assign_range, assign_round_robin
from tidelog.storage.errors import Invalid

DEFAULT_ASSIGNOR = "uniform"

_ALGORITHMS = {
    "uniform": assign_balanced,
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_balanced,
    "cooperative-sticky": assign_balanced,
}

ASSIGNORS = tuple(_ALGORITHMS)
"""The names that a member may ask for."""


def assign(task: AssignmentInput) -> Assignment:
    """The target assignment: every partition of a subscribed topic that exists, at exactly one member; every member is
    in it. Raises `Invalid` for an unknown assignor."""
    algorithm = _ALGORITHMS.get(task.assignor)
    if algorithm is None:
        known = ", ".join(ASSIGNORS)
        raise Invalid(f"unknown assignor {task.assignor!r}: use one of {known}", field="assignor")
    return algorithm(task)
