"""How severe the faults of a run are, drawn from the seed, so that any thousand seeds include calm and stormy runs."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.storage.stores.faulty import FaultPlan

from tidelog.storage.manifests import topic_lists
from tidelog.storage.upkeep.rules import UNLIMITED, UpkeepRules

CHAOS_MS = 2_500


@dataclass(frozen=True)
class Weather:
    """The faults of a seed. Intervals are in scheduler steps; 0 is never."""

    faults: FaultPlan
    brokers: int
    workers: int
    producers: int
    batches_each: int
    with_lease: bool
    lease_server_down_ms: tuple[int, int]
    stall_every_steps: int
    stall_ms_max: int
    broker_ambush: float
    other_ambush: float
    crash_every_steps: int
    rival_share: float
    upkeep: bool
    rules: UpkeepRules
    deletes_records: bool
    leader_archives: bool
    differences_min: int
    broker_stall_ms_min: int = 1
    broker_creates_stall: bool = True

    @property
    def stall_ms(self) -> tuple[int, int]:
        return 1, self.stall_ms_max

    @property
    def broker_stall_ms(self) -> tuple[int, int]:
        return self.broker_stall_ms_min, self.stall_ms_max


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
        workers=draw.choice((1, 1, 2)),
        producers=draw.choice((1, 2)),
        batches_each=draw.choice((3, 4, 5)),
        with_lease=draw.random() < 0.5,
        lease_server_down_ms=(down_ms, down_ms + draw.choice((0, 0, 600))),
        stall_every_steps=draw.choice((0, 60, 150)),
        stall_ms_max=draw.choice((100, 1_000, 2_000, 2_000)),
        broker_ambush=draw.choice((0.0, 0.03, 0.1, 0.3)),
        other_ambush=draw.choice((0.0, 0.0, 0.03, 0.1)),
        crash_every_steps=draw.choice((0, 0, 300)),
        rival_share=0.01,
        upkeep=draw.random() < 0.75,
        rules=_draw_rules(draw),
        deletes_records=draw.random() < 0.25,
        leader_archives=draw.random() < 0.5,
        differences_min=draw.choice((topic_lists.DIFFERENCES_MIN, 8)),
    )


def _draw_rules(draw: random.Random) -> UpkeepRules:
    """A segment of a pass has about 2 kB. So neighbours are merged after some passes, or when they are old by a
    worker's wall clock."""
    return UpkeepRules(
        retention_ms=UNLIMITED,
        retention_bytes=draw.choice((UNLIMITED, UNLIMITED, 1_500)),
        segment_bytes=draw.choice((3_000, 12_000, 1 << 20)),
        segment_ms=draw.choice((300, 1 << 50)),
        grace_ms=draw.choice((0, 200)),
    )


def zombie_weather(seed: int) -> Weather:
    """Writers that stall at the worst moments, longer than the grace, and lose answers: rare mistakes need this to
    show."""
    weather = draw_weather(seed)
    faults = FaultPlan(lost_answer=0.3, delayed=0.05, delay_s_max=2.5)
    stalls = replace(weather, stall_every_steps=0, crash_every_steps=0, stall_ms_max=2_000)
    alone = replace(stalls, upkeep=False, deletes_records=False, leader_archives=False)
    return replace(alone, faults=faults, brokers=3, workers=2, broker_ambush=0.3, other_ambush=0.05)


def hasty_rivals_weather(seed: int) -> Weather:
    """Like zombie weather, with workers that never stall, and brokers that take the log from each other all the time:
    a stalled writer finds its number used and deleted."""
    weather = replace(zombie_weather(seed), with_lease=False, rival_share=0.05, producers=2, batches_each=8)
    faults = FaultPlan(lost_answer=0.1)
    return replace(weather, faults=faults, stall_ms_max=1_300, broker_ambush=0.2, other_ambush=0.0)


def late_answers_weather(seed: int) -> Weather:
    """Like hasty rivals, with leaders that stall only after they have read the floor, and always for longer than a
    rival needs to take the log over and the collector to delete what it archived."""
    weather = replace(hasty_rivals_weather(seed), workers=1, producers=4, rival_share=0.15, broker_ambush=0.08)
    return replace(weather, broker_stall_ms_min=900, stall_ms_max=1_600, broker_creates_stall=False)


def slow_reader_weather(seed: int) -> Weather:
    """Like zombie weather, with so many workers that a reader or worker that stalls between two reads finds another
    log."""
    return replace(zombie_weather(seed), workers=3)


def rival_workers_weather(seed: int) -> Weather:
    """Three workers on one shard, and leaders that archive, too, stall at the worst moments, and merge whatever they
    find."""
    weather = replace(draw_weather(seed), workers=3, producers=2, batches_each=5, upkeep=True, leader_archives=True)
    weather = replace(weather, faults=FaultPlan(lost_answer=0.05), crash_every_steps=0, stall_every_steps=0)
    weather = replace(weather, stall_ms_max=2_300, broker_ambush=0.02, other_ambush=0.02)
    return replace(weather, rules=replace(weather.rules, segment_bytes=3_000, segment_ms=300, grace_ms=0))


WEATHERS = {
    "hasty rivals": hasty_rivals_weather,
    "late answers": late_answers_weather,
    "rival workers": rival_workers_weather,
    "drawn": draw_weather,
    "zombie": zombie_weather,
    "slow reader": slow_reader_weather,
}
"""By name, for replays."""
