"""A topic in a shard whose segments a test writes itself, the result of a compaction, and the view of readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace
from tests.storage.archive_scenes import ManualClock
from tests.storage.topic_segments import decode_topic_segment
from tests.storage.upkeep.merge_scenes import PLACE, encoded, stored

from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import HEADERS, RECORD_SCHEMA, STORED_SCHEMA, TIMESTAMP
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.key_spill import HashKeys, spread_hash
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.task import TopicInShard

RULES = UpkeepRules(compacts=True, deletes=False, min_cleanable_dirty_ratio=0.0)
GRACE_S = 600.0

Write = tuple[bytes | None, bytes | None]
"""Key and value; None as value is a tombstone."""
View = Mapping[bytes, bytes]
"""The final map of keys that a reader has."""


def written(begin_offset: int, writes: Sequence[Write], timestamp_ms: int) -> pa.Table:
    """Records with `RECORD_SCHEMA`."""
    arrays = [
        pa.array(range(begin_offset, begin_offset + len(writes)), pa.int64()),
        pa.array([timestamp_ms] * len(writes), TIMESTAMP),
        pa.array([key for key, _ in writes], pa.binary()),
        pa.array([value for _, value in writes], pa.binary()),
        pa.nulls(len(writes), HEADERS),
    ]
    return pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)


@dataclass
class Topic:
    """The records written to the partitions of a topic in a shard, and its bucket."""

    spill_folder: Path
    store: ObjectStore = field(default_factory=MemoryObjectStore)
    clock: ManualClock = field(default_factory=ManualClock)
    history: defaultdict[int, list[Write]] = field(default_factory=lambda: defaultdict(list))
    entropy: SeededEntropy = field(default_factory=lambda: SeededEntropy(7))

    def log(self, store: ObjectStore | None = None) -> ShardLog:
        """The log as a new process sees it."""
        return ShardLog(store or self.store, PLACE.shard, Runtime(self.clock, self.entropy))

    async def manifest(self) -> ShardManifest:
        log = self.log()
        return await log.with_lists(await log.latest(), [PLACE.topic_id])

    async def state(self) -> TopicState:
        return (await self.manifest()).topics.get(PLACE.topic_id) or TopicState(PLACE.topic)

    async def partition(self, number: int = 0) -> ColdState:
        return (await self.state()).partition(number)

    async def segments(self) -> list[TopicSegment]:
        return list((await self.state()).segments)

    async def seen(self) -> TopicInShard:
        """As a task looks at it."""
        return TopicInShard(PLACE, await self.manifest())

    async def append(self, writes: Sequence[Write] | Mapping[int, Sequence[Write]]) -> None:
        """Append one run, like the archiver: to partition 0, or to several."""
        parts = writes if isinstance(writes, Mapping) else {0: writes}
        log = self.log()
        latest = await log.with_lists(await log.latest(), [PLACE.topic_id])
        topic = latest.topics.get(PLACE.topic_id) or TopicState(PLACE.topic)
        now_ms = self.clock.now_ms()
        records = stored({at: written(len(self.history[at]), part, now_ms) for at, part in parts.items()})
        made = encoded(records, self.entropy.new_id(), topic.next_run)
        await self.store.put(made.segment.key, made.body)
        for at, part in parts.items():
            self.history[at].extend(part)
        states = {at: replace(topic.partition(at), cold_end=len(self.history[at])) for at in parts}
        change = TopicChange(PLACE.topic, added=(made.segment,), partitions=states)
        await log.append(ManifestChange(ChangeKind.ARCHIVE, {PLACE.topic_id: change}), latest)

    def task(
        self,
        store: ObjectStore | None = None,
        *,
        seed: int | None = None,
        memory_bytes: int = 1 << 26,
        hash_keys: HashKeys = spread_hash,
        spill_folder: Path | None = None,
    ) -> CompactTask:
        """A worker like that of a new process."""
        rewriter = Rewriter(
            store or self.store,
            Runtime(self.clock, self.entropy if seed is None else SeededEntropy(seed)),
            UpkeepLimits(memory_bytes=memory_bytes, grace_s=GRACE_S),
            None,
            spill_folder or self.spill_folder,
        )
        return CompactTask(rewriter, hash_keys=hash_keys)

    async def compact(self, rules: UpkeepRules = RULES) -> ShardManifest | None:
        return await whole_pass(self.task(), self.log(), rules)

    async def records(self, begin_offset: int = 0, partition: int = 0) -> pa.Table:
        """The remaining records of a partition from an offset on. Every segment is checked."""
        tables = [STORED_SCHEMA.empty_table()]
        for found in (await self.state()).segments.spans(partition):
            records = decode_topic_segment(found.segment, PLACE, (await self.store.get(found.segment.key)).data)
            tables.append(records.slice(found.first_row, found.span.records))
        records = pa.concat_tables(tables).select(RECORD_SCHEMA.names)
        return records.filter(pa.compute.greater_equal(records["offset"], begin_offset))

    async def offsets(self, partition: int = 0) -> list[int]:
        """The offsets of the remaining records."""
        left: list[int] = (await self.records(partition=partition))["offset"].to_pylist()
        return left

    async def check(self) -> None:
        """Check that the remaining records of each partition are a part of the written ones, with their order and
        offsets, and that a reader of them ends with the same map as a reader of all records."""
        for number, history in list(self.history.items()):
            left = await self.records(partition=number)
            offsets = left["offset"].to_pylist()
            assert offsets == sorted(set(offsets))
            writes = list(zip(left["key"].to_pylist(), left["value"].to_pylist(), strict=True))
            assert writes == [history[offset] for offset in offsets]
            assert view_of(writes) == view_of(history)
            assert [w for w in writes if w[0] is None] == [w for w in history if w[0] is None]
            state = await self.partition(number)
            dense = [offset for offset in offsets if offset >= state.clean_end]
            assert dense == list(range(min(state.clean_end, len(history)), len(history)))
            assert state.cold_end == len(history)
            assert not offsets or offsets[-1] == len(history) - 1


def puts(keys: str, value: str = "v") -> list[Write]:
    """One record per letter; a capital letter deletes its key, a dash has no key."""
    return [
        (None if key == "-" else key.lower().encode(), None if key.isupper() else f"{value}-{key}".encode())
        for key in keys
    ]


async def whole_pass(task: CompactTask, log: ShardLog, rules: UpkeepRules = RULES) -> ShardManifest | None:
    """Run a pass until nothing is due; return the last version."""
    last = None
    while manifest := await task.run(PLACE, log, rules):
        last = manifest
    return last


def view_of(writes: Iterable[Write]) -> View:
    """The model: a plain dict."""
    view: dict[bytes, bytes] = {}
    for key, value in writes:
        if key is None:
            continue
        if value is None:
            view.pop(key, None)
        else:
            view[key] = value
    return view
