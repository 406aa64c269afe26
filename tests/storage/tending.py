"""Upkeep of a topic until nothing is due."""

from __future__ import annotations

from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.upkeep import Step, Upkeep

STEPS_MAX = 10_000
"""A topic that needs more has two tasks that undo each other's work."""


async def tend(upkeep: Upkeep, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> Step:
    """Run tasks until nothing is due. Returns the last step."""
    for _ in range(STEPS_MAX):
        step = await upkeep.step(place, log, rules)
        if not step.appended:
            return step
    raise AssertionError("two tasks undo each other's work")
