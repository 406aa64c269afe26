"""How severe the faults of a run are, drawn from the seed, so that any thousand seeds include calm and stormy runs."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.storage.stores.faulty import FaultPlan

CHAOS_MS = 2_500


@dataclass(frozen=True)
class Weather:
    """The faults of a seed. Intervals are in scheduler steps; 0 is never."""

    faults: FaultPlan
    brokers: int
    archivers: int
    producers: int
    batches_each: int
    with_lease: bool
    lease_server_down_ms: tuple[int, int]
    stall_every_steps: int
    stall_ms_max: int
    broker_ambush: float
    other_ambush: float
    crash_every_steps: int


def draw_weather(seed: int) -> Weather:
    """The weather of `seed`."""
    draw = random.Random(f"weather {seed}")
    storm = draw.choice((0.0, 0.3, 1.0, 3.0))
    down_ms = draw.randrange(CHAOS_MS)
    return Weather(
        faults=FaultPlan(
            unavailable=0.04 * storm,
            contended=0.04 * storm,
            reset=0.02 * storm,
            lost_answer=0.06 * storm,
            delayed=0.04 * storm,
            slow=0.02 * storm,
            slow_s_max=draw.choice((0.05, 1.5)),
            delay_s_max=draw.choice((0.1, 1.0, 2.5)),
        ),
        brokers=draw.choice((2, 2, 3)),
        archivers=draw.choice((1, 1, 2)),
        producers=draw.choice((1, 2)),
        batches_each=draw.choice((3, 4, 5)),
        with_lease=draw.random() < 0.5,
        lease_server_down_ms=(down_ms, down_ms + draw.choice((0, 0, 600))),
        stall_every_steps=draw.choice((0, 60, 150)),
        stall_ms_max=draw.choice((100, 1_000, 2_000, 2_000)),
        broker_ambush=draw.choice((0.0, 0.03, 0.1, 0.3)),
        other_ambush=draw.choice((0.0, 0.0, 0.03, 0.1)),
        crash_every_steps=draw.choice((0, 0, 300)),
    )


def zombie_weather(seed: int) -> Weather:
    """Writers that stall at the worst moments, longer than the grace, and lose answers: rare mistakes need this to
    show."""
    weather = draw_weather(seed)
    faults = FaultPlan(lost_answer=0.3, delayed=0.05, delay_s_max=2.5)
    stalls = replace(weather, stall_every_steps=0, crash_every_steps=0, stall_ms_max=2_000)
    return replace(stalls, faults=faults, brokers=3, archivers=2, broker_ambush=0.3, other_ambush=0.05)


def slow_reader_weather(seed: int) -> Weather:
    """Like zombie weather, with so many archivers that a reader or archiver that stalls between two reads finds another
    log."""
    return replace(zombie_weather(seed), archivers=3)


WEATHERS = {"drawn": draw_weather, "zombie": zombie_weather, "slow reader": slow_reader_weather}
"""By name, for replays."""
