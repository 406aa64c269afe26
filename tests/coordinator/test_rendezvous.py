"""Placement: bounds, least moves, and the same result on every broker."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.leadership.rendezvous import assign

BROKERS = [f"broker-{number}" for number in range(12)]


def loads(assignment: Mapping[int, str], brokers: Sequence[str]) -> list[int]:
    counts = Counter(assignment.values())
    return sorted((counts[broker] for broker in brokers), reverse=True)


def moves(before: Mapping[int, str], after: Mapping[int, str]) -> int:
    return sum(before.get(shard) != owner for shard, owner in after.items())


def least_moves(leaders: Mapping[int, str], shards: Sequence[int], brokers: Sequence[str]) -> int:
    """The least moves: shards without a living leader and those above the ceiling; or, if more, the moves that bring
    every broker to the floor."""
    held = Counter(leaders[shard] for shard in shards if leaders.get(shard) in set(brokers))
    floor, ceiling = len(shards) // len(brokers), -(-len(shards) // len(brokers))
    must_go = len(shards) - held.total() + sum(max(0, held[broker] - ceiling) for broker in brokers)
    must_come = sum(max(0, floor - held[broker]) for broker in brokers)
    return max(must_go, must_come)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[int], list[str], dict[int, str]]:
    shards = draw(st.lists(st.integers(0, 9_999), unique=True, max_size=60))
    brokers = draw(st.lists(st.sampled_from(BROKERS), unique=True, min_size=1))
    leaders = draw(st.dictionaries(st.sampled_from(shards), st.sampled_from(BROKERS)) if shards else st.just({}))
    return shards, brokers, leaders


@given(clusters())
@settings(max_examples=300)
def test_loads_differ_by_one_at_most_and_no_shard_moves_that_need_not(
    cluster: tuple[list[int], list[str], dict[int, str]],
) -> None:
    shards, brokers, leaders = cluster
    assignment = assign(shards, brokers, leaders)
    assert sorted(assignment) == sorted(shards)
    assert set(assignment.values()) <= set(brokers)
    of_each = loads(assignment, brokers)
    assert of_each[0] - of_each[-1] <= 1
    assert moves(leaders, assignment) == least_moves(leaders, shards, brokers)


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_the_inputs_and_doubles_do_not_matter(
    cluster: tuple[list[int], list[str], dict[int, str]], shuffled: random.Random
) -> None:
    shards, brokers, leaders = cluster
    again = (shards + shards[:3], brokers + brokers[:3])
    for part in again:
        shuffled.shuffle(part)
    assert assign(*again, leaders) == assign(shards, brokers, leaders)


@given(clusters())
def test_assigned_shards_stay_assigned(cluster: tuple[list[int], list[str], dict[int, str]]) -> None:
    shards, brokers, leaders = cluster
    assignment = assign(shards, brokers, leaders)
    assert assign(shards, brokers, assignment) == assignment


@given(clusters(), st.randoms(use_true_random=False))
def test_taking_shard_by_shard_from_fresh_views_moves_each_once(
    cluster: tuple[list[int], list[str], dict[int, str]], steps: random.Random
) -> None:
    """Like leadership: dead leaders disappear, one shard is released or taken at a time in any order, and every broker
    decides again on the new state."""
    shards, brokers, leaders = cluster
    led = {shard: leader for shard, leader in leaders.items() if leader in brokers and shard in shards}
    least, taken = least_moves(leaders, shards, brokers), 0
    while (preferred := assign(shards, brokers, led)) != led:
        shard = steps.choice(sorted(shard for shard in shards if preferred[shard] != led.get(shard)))
        if shard in led:
            del led[shard]
        else:
            led[shard] = preferred[shard]
            taken += 1
    assert taken == least


def test_few_shards_are_spread_as_evenly_as_they_can() -> None:
    assert loads(assign(range(4), BROKERS[:3]), BROKERS[:3]) == [2, 1, 1]
    assert loads(assign(range(4), BROKERS[:4]), BROKERS[:4]) == [1, 1, 1, 1]
    assert loads(assign(range(4), BROKERS[:6]), BROKERS[:6]) == [1, 1, 1, 1, 0, 0]


def test_a_broker_that_comes_back_gets_the_shards_it_had() -> None:
    brokers = BROKERS[:4]
    before = assign(range(64), brokers)
    without = assign(range(64), brokers[1:], before)
    back = assign(range(64), brokers, without)
    had = {shard for shard, owner in before.items() if owner == brokers[0]}
    has = {shard for shard, owner in back.items() if owner == brokers[0]}
    assert len(had & has) >= len(had) // 2


def test_no_brokers_lead_nothing() -> None:
    assert assign(range(4), []) == {}
    assert assign([], BROKERS) == {}


def test_a_process_with_another_hash_seed_comes_to_the_same_answer() -> None:
    program = "from tidelog.coordinator.leadership.rendezvous import assign; print(assign(range(40), ['a', 'b', 'c']))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {str(assign(range(40), ["a", "b", "c"]))}
