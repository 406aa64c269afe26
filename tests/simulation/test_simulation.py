"""Hundreds of seeds of the product's writers, archivers and upkeep, each checked at every step; and checks that the
seeds cover rare events and repeat. `make soak` continues with new seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.simulation.weather import rival_workers_weather, zombie_weather
from tests.simulation.world import Cast, World

from tidelog.storage.runtime import SystemClock

SEEDS = 240
CHUNK = 80
ZOMBIE_SEEDS = 50
RIVAL_SEEDS = 40
ROOT = Path(__file__).parents[2]

AT_LEAST_IN_A_CHUNK = {
    "epoch begun": 130,
    "floor not read: known lately": 130,
    "floor read: not below it": 140,
    "PUT in doubt": 80,
    "409": 16,
    "conflict with the own lost PUT": 18,
    "fenced by another's entry": 13,
    "fenced by the floor": 1,
    "START lost its number": 7,
    "START below the floor": 5,
    "number made anew": 4,
    "crash": 10,
    "stall": 90,
    "acknowledged": 320,
    "acknowledged, sent again": 2,
    "ends told": 300,
    "archive": 150,
    "merge": 35,
    "expire": 5,
    "delete-records": 5,
    "collect": 25,
    "garbage deleted": 60,
    "version deleted": 80,
}
"""About a third of what 80 seeds contain of each event. If one is missing, the simulation tests less than it
claims."""


def run_seeds(seeds: range, cast: Cast, more: str = "") -> Counter[str]:
    """Run `seeds`; the first broken one fails the test with the command that repeats it."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        outcome = World(seed, cast).run()
        replay = f"python -m tests.simulation --seed {seed} --trace{more}"
        assert outcome.violation is None, f"{outcome.violation}\nreplay it: {replay}"
        seen += outcome.seen
    return seen


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_invariants_hold_at_every_step_and_everything_happened_often_enough(first: int) -> None:
    seen = run_seeds(range(first, first + CHUNK), Cast())
    rare = {what: seen[what] for what, least in AT_LEAST_IN_A_CHUNK.items() if seen[what] < least}
    assert not rare


def test_the_invariants_hold_among_writers_that_stall_longer_than_the_grace() -> None:
    seen = run_seeds(range(ZOMBIE_SEEDS), Cast(weather=zombie_weather), " --weather zombie")
    assert seen["number made anew"] >= 20
    assert seen["fenced by the floor"] >= 10
    assert seen["floor not read: known lately"] >= 50


def test_the_invariants_hold_among_rival_workers_that_stall_longer_than_the_grace() -> None:
    seen = run_seeds(range(RIVAL_SEEDS), Cast(weather=rival_workers_weather), ' --weather "rival workers"')
    assert seen["version made anew"] >= 2
    assert seen["planned again"] >= 3
    assert seen["merge"] >= 80


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_gives_the_same_run_every_time(seed: int) -> None:
    first, second = (World(seed, Cast(), traced=True).run() for _ in range(2))
    assert first.trace == second.trace
    assert (first.seen, first.steps) == (second.seen, second.steps)


def test_tracing_does_not_change_the_run() -> None:
    assert World(3, Cast()).run().seen == World(3, Cast(), traced=True).run().seen


def test_different_seeds_give_different_runs() -> None:
    traces = {"\n".join(World(seed, Cast(), traced=True).run().trace) for seed in range(10)}
    assert len(traces) == 10


def test_the_command_replays_a_seed_the_same_in_every_process() -> None:
    outputs = [replay_by_command(hash_seed) for hash_seed in ("1", "2")]
    assert outputs[0] == outputs[1]
    assert "CREATE wal/0000/00000000000000000000.parquet" in outputs[0]
    assert outputs[0].endswith("1 seeds, 0 broken\n")


def replay_by_command(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seed", "7", "--trace"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.soak
def test_the_invariants_hold_for_as_long_as_one_likes() -> None:
    clock = SystemClock()
    end_s = clock.monotonic() + 60 * float(os.environ.get("TIDELOG_SOAK_MINUTES", "1"))
    seed = SEEDS
    while clock.monotonic() < end_s:
        run_seeds(range(seed, seed + 50), Cast())
        run_seeds(range(seed, seed + 10), Cast(weather=zombie_weather), " --weather zombie")
        run_seeds(range(seed, seed + 10), Cast(weather=rival_workers_weather), ' --weather "rival workers"')
        seed += 50
    assert seed > SEEDS
