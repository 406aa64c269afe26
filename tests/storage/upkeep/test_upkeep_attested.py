"""All upkeep tasks together, for weeks: readers see the same, the bucket stays tidy, and the recorded steps lead from
the first version to the segments of the newest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from tests.storage.archive_scenes import keys
from tests.storage.tending import tend
from tests.storage.upkeep.compaction_scenes import GRACE_S, Topic, Write, view_of
from tests.storage.upkeep.merge_scenes import PLACE

from tidelog.storage.errors import NotFound
from tidelog.storage.manifests.shard_chain import GENESIS, Step, head_after
from tidelog.storage.manifests.shard_history import ShardHistory
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import step_of
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.upkeep.collect import Collector
from tidelog.storage.upkeep.rules import DAY_MS, UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.upkeep import Upkeep, upkeep_tasks

DELETE = UpkeepRules(retention_ms=5 * DAY_MS, segment_bytes=20_000, segment_ms=DAY_MS // 2, grace_ms=0)
COMPACT = UpkeepRules(
    deletes=False, compacts=True, delete_retention_ms=DAY_MS // 4, min_cleanable_dirty_ratio=0.6, grace_ms=0
)
ALWAYS = {ChangeKind.ARCHIVE, ChangeKind.COLLECT}
DAYS, APPENDS_A_DAY, PARTITIONS = 12, 8, 3
BLOCK_VERSIONS = 8


class Worker:
    """A worker of the shard, as a broker has it, with smaller blocks of history."""

    def __init__(self, topic: Topic, folder: Path, rules: UpkeepRules) -> None:
        runtime = Runtime(topic.clock, SeededEntropy(1))
        limits = UpkeepLimits(memory_bytes=1 << 20, grace_s=GRACE_S)
        self._upkeep = Upkeep(upkeep_tasks(topic.store, runtime, limits, None, folder), runtime)
        self._collector = Collector(
            topic.store, runtime, GRACE_S, lambda _: rules.grace_ms, block_versions=BLOCK_VERSIONS
        )
        self._topic = topic
        self._rules = rules
        self._log = ShardLog(topic.store, PLACE.shard, runtime)

    async def tend(self) -> None:
        now_ms = self._topic.clock.now_ms()
        step = await tend(self._upkeep, PLACE, self._log, self._rules)
        due_ms = self._collector.due_at_ms(step.manifest, now_ms)
        if due_ms is not None and due_ms <= now_ms:
            await self._collector.run(self._log)


async def weeks(topic: Topic, folder: Path, rules: UpkeepRules) -> list[tuple[int, str]]:
    """Records arrive and upkeep runs; the version and head of each day."""
    random, heads = Random(1), []
    worker = Worker(topic, folder, rules)
    for _ in range(DAYS):
        for _ in range(APPENDS_A_DAY):
            await topic.append({at: writes(random) for at in random.sample(range(PARTITIONS), 2)})
            await worker.tend()
            topic.clock.now_s += DAY_MS / 1_000 / APPENDS_A_DAY
        manifest = await topic.manifest()
        heads.append((manifest.version, manifest.head))
    for _ in range(4):
        await worker.tend()
        topic.clock.now_s += GRACE_S
    return heads


def writes(random: Random) -> list[Write]:
    return [
        (b"key %d" % random.randrange(40), random.randbytes(30) if random.random() > 0.1 else None) for _ in range(30)
    ]


async def steps_of(topic: Topic) -> Sequence[Step]:
    """Every step since the first version, from blocks of the history and the versions that are left."""
    log, history = topic.log(), ShardHistory(topic.store, PLACE.shard)
    steps: list[Step] = []
    for versions in await history.blocks():
        steps += (await history.read(*versions)).steps
    version = len(steps)
    while True:
        try:
            steps.append(step_of(await log.read(version)))
        except NotFound:
            return steps
        version += 1


async def check_history(topic: Topic, heads: list[tuple[int, str]]) -> set[ChangeKind]:
    """The heads follow from each other and contain the noted ones, and the steps lead to the segments that are listed.
    Returns the kinds of steps."""
    steps = await steps_of(topic)
    head, listed = GENESIS, set[str]()
    for version, step in enumerate(steps):
        assert step.version == version
        head = head_after(head, PLACE.shard, step)
        assert head == step.head
        if change := step.recorded.topics.get(PLACE.topic_id):
            assert set(change.removed) <= listed
            listed = (listed - set(change.removed)) | set(change.added)
    assert all(steps[version].head == noted for version, noted in heads)
    assert listed == {segment.sha256 for segment in await topic.segments()}
    return {step.recorded.kind for step in steps}


@pytest.mark.parametrize(
    ("rules", "kinds"),
    [
        (DELETE, ALWAYS | {ChangeKind.MERGE, ChangeKind.EXPIRE}),
        (COMPACT, ALWAYS | {ChangeKind.MERGE, ChangeKind.COMPACT}),
    ],
    ids=["delete", "compact"],
)
async def test_weeks_of_upkeep_are_recorded_and_leave_nothing_behind(
    tmp_path: Path, rules: UpkeepRules, kinds: set[ChangeKind]
) -> None:
    topic = Topic(tmp_path)
    heads = await weeks(topic, tmp_path, rules)
    assert await check_history(topic, heads) == kinds
    if rules.compacts:
        await topic.check()
    for number, history in topic.history.items():
        start = (await topic.partition(number)).log_start_offset
        found = await topic.records(start, number)
        pairs = list(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))
        assert rules.compacts or pairs == history[start:]
        assert view_of(pairs) == view_of(history[start:])
    newest = await topic.manifest()
    named = {segment.key for segment in await topic.segments()}
    assert set(await keys(topic.store, f"topics/web/{PLACE.topic_id}/")) == named
    assert len(named) < DAYS * APPENDS_A_DAY // 3
    assert newest.garbage == ()
    assert min([version async for version in topic.log().versions()]) > newest.version - 2 * BLOCK_VERSIONS
