"""`tidelog cluster info` says how evenly shards are spread."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidelog.client import MemberDescription, MembershipDescription, PlacementDescription
from tidelog.services.cli.cluster import balance_text


def member(name: str, *, draining: bool) -> MemberDescription:
    return MemberDescription(name, f"http://{name}", "", "", 0, 0, draining)


def members(leaders: Mapping[int, tuple[str | None, str]], draining: str = "") -> MembershipDescription:
    """Three brokers; for each shard its leader and its preferred leader."""
    brokers = tuple(member(name, draining=name == draining) for name in "abc")
    shards = tuple(PlacementDescription(shard, led, 1, should) for shard, (led, should) in leaders.items())
    return MembershipDescription("id", "main", "etcd", "", brokers, shards)


@pytest.mark.parametrize(
    ("leaders", "draining", "text"),
    [
        ({0: ("a", "a"), 1: ("b", "b"), 2: ("a", "a"), 3: ("c", "c")}, "", "most 2, fewest 1, fair 1.3"),
        ({0: ("a", "a"), 1: (None, "b")}, "", "most 1, fewest 0, fair 0.7; 1 without a leader"),
        ({0: ("a", "a"), 1: ("c", "b")}, "c", "most 1, fewest 0, fair 1.0; 1 to move"),
        ({}, "", "most 0, fewest 0, fair 0.0"),
    ],
)
def test_balance_counts_the_brokers_that_may_lead(
    leaders: Mapping[int, tuple[str | None, str]], draining: str, text: str
) -> None:
    assert balance_text(members(leaders, draining)) == text


def test_a_cluster_of_brokers_that_all_drain_is_reported() -> None:
    alone = MembershipDescription("id", "main", "etcd", "", (member("a", draining=True),), ())
    assert balance_text(alone) == "no broker may lead any"
