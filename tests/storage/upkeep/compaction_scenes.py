"""A partition whose segments a test writes itself, the result of a compaction, and the view of readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from tests.storage.archive_scenes import ManualClock
from tests.storage.record_tables import WEB

from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import HEADERS, RECORD_SCHEMA, TIMESTAMP
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.segments.segment_codec import decode_segment, encode_segment
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.key_spill import HashKeys, spread_hash
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.task import Place

PLACE = Place("web", WEB)
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
class Partition:
    """The records written to a partition, and its bucket."""

    spill_folder: Path
    store: ObjectStore = field(default_factory=MemoryObjectStore)
    clock: ManualClock = field(default_factory=ManualClock)
    history: list[Write] = field(default_factory=list)
    entropy: SeededEntropy = field(default_factory=lambda: SeededEntropy(7))

    def log(self, store: ObjectStore | None = None) -> ManifestLog:
        """The log as a new process sees it."""
        return ManifestLog(store or self.store, PLACE.topic, PLACE.topic_partition)

    async def manifest(self) -> Manifest:
        return await self.log().latest()

    async def append(self, writes: Sequence[Write]) -> None:
        """Append one segment, like the archiver."""
        log = self.log()
        manifest = await log.latest()
        records = written(len(self.history), writes, self.clock.now_ms())
        encoded = encode_segment(PLACE.topic, PLACE.topic_partition, records, self.entropy.new_id())
        await self.store.put(encoded.segment.key, encoded.body)
        self.history.extend(writes)
        await log.append(replace(manifest, cold_end=len(self.history), segments=(*manifest.segments, encoded.segment)))

    def task(
        self,
        store: ObjectStore | None = None,
        *,
        seed: int = 0,
        memory_bytes: int = 1 << 20,
        hash_keys: HashKeys = spread_hash,
        spill_folder: Path | None = None,
    ) -> CompactTask:
        """A worker like that of a new process."""
        return CompactTask(
            store or self.store,
            Runtime(self.clock, SeededEntropy(seed)),
            UpkeepLimits(memory_bytes=memory_bytes, grace_s=GRACE_S),
            None,
            spill_folder or self.spill_folder,
            hash_keys=hash_keys,
        )

    async def compact(self, rules: UpkeepRules = RULES) -> Manifest | None:
        return await whole_pass(self.task(), self.log(), rules)

    async def records(self, begin_offset: int = 0) -> pa.Table:
        """The remaining records from an offset on."""
        tables = [RECORD_SCHEMA.empty_table()]
        for segment in (await self.manifest()).segments:
            tables.append(decode_segment(segment.key, (await self.store.get(segment.key)).data))
        records = pa.concat_tables(tables)
        return records.filter(pa.compute.greater_equal(records["offset"], begin_offset))

    async def offsets(self) -> list[int]:
        """The offsets of the remaining records."""
        left: list[int] = (await self.records())["offset"].to_pylist()
        return left

    async def check(self) -> None:
        """Check that the remaining records are a part of the written ones, with their order and offsets, and that a
        reader of them ends with the same map as a reader of all records."""
        left = await self.records()
        offsets = left["offset"].to_pylist()
        assert offsets == sorted(set(offsets))
        writes = list(zip(left["key"].to_pylist(), left["value"].to_pylist(), strict=True))
        assert writes == [self.history[offset] for offset in offsets]
        assert view_of(writes) == view_of(self.history)
        assert [w for w in writes if w[0] is None] == [w for w in self.history if w[0] is None]
        manifest = await self.manifest()
        dense = [offset for offset in offsets if offset >= manifest.clean_end]
        assert dense == list(range(min(manifest.clean_end, len(self.history)), len(self.history)))
        assert manifest.cold_end == len(self.history)


def puts(keys: str, value: str = "v") -> list[Write]:
    """One record per letter; a capital letter deletes its key, a dash has no key."""
    return [
        (None if key == "-" else key.lower().encode(), None if key.isupper() else f"{value}-{key}".encode())
        for key in keys
    ]


async def whole_pass(task: CompactTask, log: ManifestLog, rules: UpkeepRules = RULES) -> Manifest | None:
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
