"""The target assignment of a group of 1,000 members and 10,000 partitions, after joins and leaves. It starts no
process. It calls the assignor as a coordinator does, in a thread; an event loop beside it counts its longest stall."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side
from tidelog.coordinator.groups.assignors.assign import assign
from tidelog.coordinator.groups.assignors.assignment import Assignment, AssignmentInput, Subscriber
from tidelog.coordinator.groups.group_step import TopicInfo

MEMBERS, PARTITIONS = 1_000, 10_000
ZONES = ("a", "b", "c")
WHAT = f"assignment: {MEMBERS:,} members, {PARTITIONS:,} partitions"
CLIENT = "all join, one leaves, half leave, half join"
SECONDS_GOAL = Goal("under 2 s", 2.0, at_least=False)
Topics = dict[str, TopicInfo]
Subscription = Callable[[int], frozenset[str]]


@dataclass
class _Found:
    seconds: list[float] = field(default_factory=list)
    stall_s: float = 0.0


def rows(bench: Bench) -> list[Row]:
    members, partitions = bench.scaled(MEMBERS), bench.scaled(PARTITIONS)
    sides = [
        _side("all subscribe to 100 topics", *_equal(100, partitions), members, bench.rounds),
        _side("each subscribes to 10 of 1,000 topics", *_drawn(1_000, partitions, 10), members, bench.rounds),
        _side("each subscribes to half of 1,000 topics", *_drawn(1_000, partitions, 500), members, bench.rounds),
    ]
    return [Row("group-assignment", WHAT, SECONDS_GOAL, max(side.high for side in sides), sides)]


def _equal(topics: int, partitions: int) -> tuple[Topics, Subscription]:
    infos = _topics(topics, partitions)
    everything = frozenset(infos)
    return infos, lambda _: everything


def _drawn(topics: int, partitions: int, each: int) -> tuple[Topics, Subscription]:
    infos = _topics(topics, partitions)
    names = sorted(infos)
    return infos, lambda number: frozenset(random.Random(number).sample(names, each))


def _topics(count: int, partitions: int) -> Topics:
    each = max(partitions // count, 1)
    zones = [ZONES[number % len(ZONES)] for number in range(each)]
    return {f"topic-{number}": TopicInfo(f"id-{number}", each, zones) for number in range(count)}


def _side(name: str, topics: Topics, subscription: Subscription, members: int, rounds: int) -> Side:
    subscribers = [
        Subscriber(f"m{number:05}", subscription(number), rack=ZONES[number % len(ZONES)]) for number in range(members)
    ]
    found = [asyncio.run(_measured(topics, subscribers)) for _ in range(rounds)]
    stall_ms = max(each.stall_s for each in found) * 1_000
    notes = [f"the event loop beside it stood still for {stall_ms:.0f} ms at most"]
    return Side(f"Tidelog, {name}", CLIENT, "s", [max(each.seconds) for each in found], notes)


async def _measured(topics: Topics, subscribers: list[Subscriber]) -> _Found:
    found = _Found()
    watch = asyncio.create_task(_watch(found))
    everybody = await _assigned(found, topics, subscribers)
    await _assigned(found, topics, everybody[1:])
    half = await _assigned(found, topics, everybody[::2])
    await _assigned(found, topics, half + [replace(each, owned=frozenset()) for each in everybody[1::2]])
    watch.cancel()
    return found


async def _assigned(found: _Found, topics: Topics, subscribers: list[Subscriber]) -> list[Subscriber]:
    task = AssignmentInput("uniform", tuple(subscribers), topics)
    began = time.perf_counter()
    target: Assignment = await asyncio.to_thread(assign, task)
    found.seconds.append(time.perf_counter() - began)
    return [replace(each, owned=target[each.member_id]) for each in subscribers]


async def _watch(found: _Found) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        found.stall_s = max(found.stall_s, time.perf_counter() - began - 0.001)
