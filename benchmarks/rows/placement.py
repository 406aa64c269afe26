"""Placement in a simulated cluster of 1,000 brokers and 100,000 shards, after joins and deaths of one or many brokers.
It starts no process; it calls the placement function as brokers do."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side
from tidelog.coordinator.leadership.rendezvous import assign

BROKERS, SHARDS = 1_000, 100_000
EVENTS = 30
CHANGES = (1, 1, 1, 1, 10, 100)
"""The number of brokers that join or die in an event: mostly one, sometimes a rack or a zone."""
WHAT = f"placement: {BROKERS:,} brokers, {SHARDS:,} shards, joins and deaths"
CLIENT = f"{EVENTS} events of 1, 10 or 100 brokers that join or die"
SHARE_GOAL = Goal("share within 20 % of fair", 20.0, at_least=False)
MOVES_GOAL = Goal("moves within 10 % of the least possible", 1.1, at_least=False)


@dataclass
class _Found:
    """The result of one sequence of events. `unfairness`: the largest distance of a broker's share from the fair share,
    in per cent of the fair share."""

    unfairness: float = 0.0
    moved: int = 0
    least: int = 0
    seconds_max: float = 0.0


def rows(bench: Bench) -> list[Row]:
    found = [_simulated(seed, bench.scaled(BROKERS), bench.scaled(SHARDS)) for seed in range(bench.rounds)]
    slowest = f"the slowest of all decisions took {max(each.seconds_max for each in found):.2f} s"
    unfairness = Side("Tidelog", CLIENT, "% from fair", [each.unfairness for each in found], [slowest])
    moves = Side("Tidelog", CLIENT, "x the least", [each.moved / each.least for each in found])
    return [
        Row("placement-share", WHAT, SHARE_GOAL, unfairness.high, [unfairness]),
        Row("placement-moves", WHAT, MOVES_GOAL, moves.high, [moves]),
    ]


def _simulated(seed: int, broker_count: int, shard_count: int) -> _Found:
    choices, found = random.Random(seed), _Found()
    brokers, shards = [f"broker-{seed}-{number}" for number in range(broker_count)], range(shard_count)
    leaders = assign(shards, brokers)
    for event in range(EVENTS):
        count = min(choices.choice(CHANGES), len(brokers) // 2)
        if choices.random() < 0.5:
            joined = [f"broker-{seed}-{event}-{number}" for number in range(count)]
            brokers = [*brokers, *joined]
        else:
            joined = []
            brokers = sorted(set(brokers) - set(choices.sample(brokers, count)))
        began = time.perf_counter()
        after = assign(shards, brokers, leaders)
        found.seconds_max = max(found.seconds_max, time.perf_counter() - began)
        found.least += _least(leaders, brokers, joined)
        found.moved += sum(leaders[shard] != after[shard] for shard in shards)
        found.unfairness = max(found.unfairness, _unfairness(after, brokers))
        leaders = after
    return found


def _least(leaders: Mapping[int, str], brokers: Sequence[str], joined: Sequence[str]) -> int:
    """The least possible moves: the shards of brokers that died, or the fair share of brokers that joined."""
    alive = set(brokers)
    orphans = sum(leader not in alive for leader in leaders.values())
    return max(orphans, len(joined) * (len(leaders) // len(brokers)))


def _unfairness(leaders: Mapping[int, str], brokers: Sequence[str]) -> float:
    loads, fair = Counter(leaders.values()), len(leaders) / len(brokers)
    return max(100 * abs(loads[broker] / fair - 1) for broker in brokers)
