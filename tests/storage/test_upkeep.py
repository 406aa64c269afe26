"""The loop over upkeep tasks: due tasks run in order until none is due; a version of another worker starts the loop
over."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.storage.archive_scenes import ManualClock
from tests.storage.segment_lists import PLACE, SHARD, TOPIC_ID, Pass, dense, log_starts, passes_of, seen
from tests.storage.tending import tend

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep.log_starts import delete_records
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.task import TopicInShard
from tidelog.storage.upkeep.upkeep import ASK_AGAIN_MS, CONFLICTS_MAX, Upkeep

RULES = UpkeepRules()


@dataclass
class StepsTask:
    """Has `steps` steps to do, and is due again at `later_ms`. Each step adds `name` to `ran`."""

    name: str
    steps: int
    ran: list[str]
    later_ms: int | None = None
    in_vain: bool = field(default=False, kw_only=True)

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules, now_ms: int) -> int | None:
        return now_ms if self.steps else self.later_ms

    async def run(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> ShardManifest | None:
        self.ran.append(self.name)
        if self.in_vain:
            return None
        manifest = await log.append(ManifestChange(ChangeKind.MERGE), await log.latest())
        self.steps -= 1
        return manifest


async def a_log(store: ObjectStore | None = None, clock: ManualClock | None = None) -> ShardLog:
    log = ShardLog(store or MemoryObjectStore(), SHARD, Runtime(clock or ManualClock()))
    await log.latest()
    await log.append(passes_of(dense([Pass({0: 50})])))
    return log


def upkeep_of(*tasks: StepsTask, clock: ManualClock | None = None) -> Upkeep:
    return Upkeep(tasks, Runtime(clock or ManualClock()))


async def test_the_first_task_that_is_due_runs_until_it_is_not() -> None:
    ran: list[str] = []
    upkeep = upkeep_of(
        StepsTask("a", 0, ran), StepsTask("b", 2, ran, later_ms=2_000_009), StepsTask("c", 1, ran, later_ms=2_000_007)
    )
    step = await tend(upkeep, PLACE, await a_log(), RULES)
    assert ran == ["b", "b", "c"]
    assert (step.manifest.version, step.appended, step.due_at_ms) == (3, False, 2_000_007)


async def test_a_step_is_one_version_and_tells_what_is_due_then() -> None:
    ran: list[str] = []
    clock = ManualClock()
    upkeep, log = upkeep_of(StepsTask("a", 1, ran), StepsTask("b", 1, ran), clock=clock), await a_log()
    first, second = await upkeep.step(PLACE, log, RULES), await upkeep.step(PLACE, log, RULES)
    assert (first.appended, first.due_at_ms) == (True, clock.now_ms())
    assert (second.appended, second.due_at_ms) == (True, None)
    assert ran == ["a", "b"]


async def test_a_task_that_found_nothing_to_do_lets_the_others_come_and_is_asked_again_later() -> None:
    ran: list[str] = []
    clock = ManualClock()
    upkeep = upkeep_of(StepsTask("a", 1, ran, in_vain=True), StepsTask("b", 1, ran), clock=clock)
    step = await tend(upkeep, PLACE, await a_log(), RULES)
    assert ran == ["a", "b", "a"]
    assert step.due_at_ms == clock.now_ms() + ASK_AGAIN_MS


class _RivalStore(MemoryObjectStore):
    """Another worker appends a version before each of the next `rivals` creates."""

    rivals = 0

    async def create(self, key: str, data: Body) -> str:
        if self.rivals:
            rivals, self.rivals = self.rivals - 1, 0
            log = ShardLog(self, SHARD, Runtime(ManualClock()))
            start = log_starts((await log.latest()).topics[TOPIC_ID])[0]
            await delete_records(log, PLACE, 0, start + 1)
            self.rivals = rivals
        return await super().create(key, data)


async def test_a_faster_worker_is_no_error() -> None:
    store, ran = _RivalStore(), list[str]()
    log = await a_log(store)
    store.rivals = 2
    step = await upkeep_of(StepsTask("a", 1, ran)).step(PLACE, log, RULES)
    assert ran == ["a", "a", "a"]
    assert (step.manifest.version, log_starts(step.manifest.topics[TOPIC_ID])) == (3, {0: 2})


async def test_workers_that_are_faster_again_and_again_are_a_conflict() -> None:
    store, ran = _RivalStore(), list[str]()
    log = await a_log(store)
    store.rivals = CONFLICTS_MAX
    with pytest.raises(Conflict):
        await upkeep_of(StepsTask("a", 1, ran)).step(PLACE, log, RULES)
    assert len(ran) == CONFLICTS_MAX


NOTHING = seen(dense([]))


def test_the_first_due_time_counts() -> None:
    ran: list[str] = []
    assert upkeep_of().due_at_ms(NOTHING, RULES) is None
    assert upkeep_of(StepsTask("a", 0, ran)).due_at_ms(NOTHING, RULES) is None
    tasks = [
        StepsTask("a", 0, ran, later_ms=2_000_020),
        StepsTask("b", 0, ran, later_ms=2_000_010),
        StepsTask("c", 0, ran),
    ]
    assert upkeep_of(*tasks).due_at_ms(NOTHING, RULES) == 2_000_010


async def test_a_topic_that_left_the_shard_is_never_due() -> None:
    ran: list[str] = []
    log = await a_log()
    await log.append(ManifestChange(ChangeKind.DELETE_TOPIC, dropped=(TOPIC_ID,)))
    step = await tend(upkeep_of(StepsTask("a", 1, ran)), PLACE, log, RULES)
    assert (ran, step.appended, step.due_at_ms) == ([], False, None)


async def test_a_step_with_nothing_to_do_costs_one_head() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    log = await a_log(counting)
    before = counting.usage()
    await upkeep_of(StepsTask("a", 0, [])).step(PLACE, log, RULES)
    spent = counting.usage() - before
    assert spent.requests() == spent.requests(Verb.HEAD) == 1
