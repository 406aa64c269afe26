"""Writes a bucket that later versions must be able to open: ``python -m tests.formats.write FOLDER``.

It makes ``level-<n>.tar.gz`` and ``level-<n>.json`` of this program's feature level. Run it once, when a feature level
is new. The file of an earlier level is never written again: it stands for the buckets that exist.
"""

from __future__ import annotations

import asyncio
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.logs import partition_log
from tests.broker.set_clock import SetClock
from tests.formats.expected import (
    Expected,
    ExpectedBatch,
    ExpectedLog,
    ExpectedOffset,
    ExpectedTopic,
    Row,
    read_log,
)

from tidelog.coordinator.groups.journal import journal_compaction
from tidelog.coordinator.topics.journal_topics import JournalTopics
from tidelog.services.broker.api.produce import Draft, ProduceOptions, ProducerSequence
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage import formats
from tidelog.storage.bucket.attest import BucketAttestation, TopicHead
from tidelog.storage.bucket.copy_mark import CopyMark, encode_copy_mark
from tidelog.storage.bucket.repair.bucket_repair import BucketRepair
from tidelog.storage.layout import COPY_KEY
from tidelog.storage.manifests import topic_lists
from tidelog.storage.records import DRAFT_SCHEMA
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.directory import PRIVATE_FOLDER
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.wire import groups as calls

BEGAN_MS = 1_767_225_600_000
"""2026-01-01."""
SHARDS = 2
HOUR_S = 3_600.0
PASSES = 20
"""Of the archiver, an hour apart: level 0 is merged to level 1 on the way."""
LIST_DIFFERENCES = 10
"""Topics with more get a list (`topic_lists.DIFFERENCES_MIN`, which is much higher)."""
SNAPSHOT_ENTRIES = 3
"""Of the journal of groups, between two snapshots (`journal_compaction.ENTRIES_MAX`, which is much higher)."""
TRIMMED = 280
"""Deletions of records, each of which makes a version: more than a block of the history holds."""
WIDE_PARTITIONS = 40
TOPICS: dict[str, tuple[int, dict[str, str | int | None]]] = {
    "levels": (2, {"segment.bytes": 1_048_576, "segment.ms": 1, "retention.ms": -1}),
    "keyed": (2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "wide": (WIDE_PARTITIONS, {"retention.ms": -1, "segment.key.bloom.filter": "true"}),
    "texts": (1, {"max.message.bytes": 2_000_000}),
    "copied": (1, {"file.delete.delay.ms": 0}),
    "trimmed": (1, {"retention.bytes": 10_000_000}),
    "lost": (2, {}),
    "again": (1, {}),
}
OFFSETS = (
    ExpectedOffset("readers", "levels", 0, 7, 1, ""),
    ExpectedOffset("readers", "texts", 0, 2, 1, "a note"),
    ExpectedOffset("é/b", "wide", 3, 1, 1, ""),
)


class BucketWriter:
    """One bucket. `produced` has the digest of every record that was acknowledged, by topic, partition and offset."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = SetClock()
        self._clock.wall_ahead_ms = BEGAN_MS - self._clock.now_ms()
        self._produced: dict[tuple[str, int], dict[int, str]] = {}
        self._batches: dict[tuple[str, int, str], ExpectedBatch] = {}

    async def write(self) -> Expected:
        """Write the bucket; return what it holds."""
        with _small_limits():
            async with self._broker() as broker:
                for name, (partitions, configs) in TOPICS.items():
                    await broker.create_topic(ANYBODY, name, partitions, configs)
                await self._commit(broker)
                await self._fill(broker)
                lost = (await partition_log(broker, "lost", 0)).segments[1].key
            await self._lose(lost)
            await self._mark()
            async with self._broker(upkeep=False) as broker:
                await self._finish(broker)
                return await self._expected(broker)

    async def _mark(self) -> None:
        """Mark the bucket as a complete copy of another one."""
        mark = CopyMark("s3://another-bucket", "0" * 32, whole=True, copied_at_ms=BEGAN_MS)
        await LocalObjectStore(self._folder).create(COPY_KEY, encode_copy_mark(mark))

    def _broker(self, *, upkeep: bool = True) -> AbstractAsyncContextManager[LocalBroker]:
        store = LocalObjectStore(self._folder)
        return running_broker(store, clock=self._clock, shards=SHARDS, archiver_upkeep=upkeep)

    # ---- writing

    async def _fill(self, broker: LocalBroker) -> None:
        for number in range(3):
            await self._produce_levels(broker, number)
            await self._produce(broker, "lost", 1, [self._row(f"kept {number}")])
            await self._produce(broker, "lost", 0, [self._row(f"{number}.{each}") for each in range(5)])
            await broker.archive_now()
            await broker.upkeep_now()
        await broker.alter_topic(ANYBODY, "levels", None, {"segment.ms": 604_800_000})
        await self._produce_once(broker)
        await self._trim(broker)
        for number in range(3, 3 + PASSES):
            await self._produce_levels(broker, number)
            await self._produce_keyed(broker, number)
            await self._produce_wide(broker, number)
            await broker.archive_now()
            await broker.upkeep_now()
            self._clock.pass_time(HOUR_S)

    async def _produce_once(self, broker: LocalBroker) -> None:
        texts = [
            self._row(None),
            self._row("", key=""),
            self._row("with a key", key="k"),
            self._row("héadèrs", key="ключ", headers=[("a", b"1"), ("a", b""), ("", None)]),
            self._row("no headers in a list", headers=[]),
            self._row("x" * 70_000, key="long"),
        ]
        await self._produce(broker, "texts", 0, texts)
        for part in range(2):  # large enough that the archiver copies row groups
            await self._produce(broker, "copied", 0, [self._row(f"{part}.{each} " * 80) for each in range(500)])
        await self._produce(broker, "again", 0, [self._row("of the deleted topic")])
        await broker.archive_now()
        await broker.delete_topic(ANYBODY, "again")
        self._produced.pop(("again", 0))
        await broker.archive_now()
        await broker.create_topic(ANYBODY, "again", 1, {})
        await self._produce(broker, "again", 0, [self._row("of the new topic", key="k")])

    async def _trim(self, broker: LocalBroker) -> None:
        await self._produce(broker, "trimmed", 0, [self._row(f"{number}") for number in range(TRIMMED + 20)])
        await broker.archive_now()
        for offset in range(1, TRIMMED + 1):
            await broker.delete_records(ANYBODY, "trimmed", 0, offset)

    async def _produce_levels(self, broker: LocalBroker, number: int) -> None:
        for partition in range(2):
            rows = [self._row(f"event {number} of {each}", key=f"user-{each % 5}") for each in range(5)]
            await self._produce(
                broker, "levels", partition, rows, producer=f"producer-{partition}", sequence=5 * number
            )

    async def _produce_keyed(self, broker: LocalBroker, number: int) -> None:
        for partition in range(2):
            rows = [self._row(f"state {number}", key=f"key-{(number + each) % 12}") for each in range(4)]
            rows.append(self._row(None, key=f"key-{number % 7}"))  # a tombstone
            await self._produce(broker, "keyed", partition, rows)

    async def _produce_wide(self, broker: LocalBroker, number: int) -> None:
        for partition in range(number % 2, WIDE_PARTITIONS, 8):
            await self._produce(broker, "wide", partition, [self._row(f"{number}", key=f"{partition}")])

    async def _commit(self, broker: LocalBroker) -> None:
        for each in OFFSETS:
            committed = calls.PartitionOffset(
                topic=each.topic,
                partition=each.partition,
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
            )
            await broker.groups.call(ANYBODY, each.group, calls.CommitOffsets(offsets=(committed,)))

    async def _lose(self, key: str) -> None:
        """Delete the segment `key`, and let a repair record the loss."""
        store, runtime = LocalObjectStore(self._folder), Runtime(self._clock)
        await store.delete(key)
        repair = BucketRepair(store, JournalTopics(store, runtime), runtime, deep=True)
        await repair.apply(await repair.plan())
        assert not await repair.plan()
        await store.aclose()

    async def _finish(self, broker: LocalBroker) -> None:
        """Leave garbage, records that no compaction has seen, and WAL entries that are not archived."""
        for number in range(3 + PASSES, 6 + PASSES):
            await self._produce_levels(broker, number)
            await self._produce_keyed(broker, number)
            await self._produce_wide(broker, number)
            await broker.archive_now()
        for number in range(6 + PASSES, 10 + PASSES):
            await self._produce_levels(broker, number)
            await self._produce_keyed(broker, number)
            await self._produce_wide(broker, number)

    async def _produce(
        self,
        broker: LocalBroker,
        topic: str,
        partition: int,
        rows: list[Row],
        *,
        producer: str | None = None,
        sequence: int = 0,
    ) -> None:
        records = pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], schema=DRAFT_SCHEMA)
        named = ProducerSequence(producer, 0, sequence) if producer else None
        (answer,) = await broker.produce(
            ANYBODY, topic, Draft(records, None, records.nbytes), ProduceOptions(partition=partition, producer=named)
        )
        assert answer.base_offset is not None
        log = self._produced.setdefault((topic, partition), {})
        log |= {answer.base_offset + place: row.digest for place, row in enumerate(rows)}
        if producer:
            batch = ExpectedBatch(topic, partition, producer, 0, sequence, len(rows), answer.base_offset)
            self._batches[topic, partition, producer] = batch

    def _row(
        self,
        value: str | None,
        *,
        key: str | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> Row:
        now_ms = self._clock.now_ms()
        return Row(now_ms, None if key is None else key.encode(), None if value is None else value.encode(), headers)

    # ---- describing

    async def _expected(self, broker: LocalBroker) -> Expected:
        return Expected(
            feature_level=formats.FEATURE_LEVEL,
            written_at_ms=self._clock.now_ms(),
            formats=format_versions(),
            topics=tuple([await self._topic(broker, name) for name in TOPICS]),
            offsets=OFFSETS,
            batches=tuple(self._batches.values()),
            heads=await self._heads(),
        )

    async def _topic(self, broker: LocalBroker, name: str) -> ExpectedTopic:
        topic = broker.topic(ANYBODY, name)
        logs = [await self._log(broker, name, number) for number in range(topic.partition_count)]
        return ExpectedTopic(name, topic.topic_id, topic.config.as_kafka(), tuple(logs))

    async def _log(self, broker: LocalBroker, topic: str, partition: int) -> ExpectedLog:
        """Each record must be the one that was acknowledged, and only compaction and losses may take one away."""
        ends = await partition_log(broker, topic, partition)
        read, losses = await read_log(broker, topic, partition, ends.log_start_offset, ends.high_watermark)
        produced = self._produced.get((topic, partition), {})
        assert read.items() <= produced.items(), (topic, partition)
        gone = {offset for first, end in losses for offset in range(first, end)} | set(range(ends.log_start_offset))
        assert topic == "keyed" or produced.keys() - gone == read.keys(), (topic, partition)
        return ExpectedLog(ends.log_start_offset, ends.cold_end, ends.high_watermark, tuple(losses), read)

    async def _heads(self) -> tuple[TopicHead, ...]:
        heads = [head async for head in BucketAttestation(LocalObjectStore(self._folder), Runtime()).heads()]
        return tuple(head for head in heads if isinstance(head, TopicHead))


def format_versions() -> dict[str, int]:
    """The versions of all formats that this program writes."""
    return {each.name: each.newest for each in vars(formats).values() if isinstance(each, formats.Format)}


@contextmanager
def _small_limits() -> Iterator[None]:
    """Let small topics have lists, and a small journal of groups a snapshot."""
    differences, topic_lists.DIFFERENCES_MIN = topic_lists.DIFFERENCES_MIN, LIST_DIFFERENCES
    entries, journal_compaction.ENTRIES_MAX = journal_compaction.ENTRIES_MAX, SNAPSHOT_ENTRIES
    try:
        yield
    finally:
        topic_lists.DIFFERENCES_MIN, journal_compaction.ENTRIES_MAX = differences, entries


def _pack(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:gz", compresslevel=9) as packed:
        for path in sorted(folder.iterdir()):
            if path.name != PRIVATE_FOLDER:
                packed.add(path, path.name, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as bucket:
        expected = asyncio.run(BucketWriter(Path(bucket)).write())
        name = f"level-{expected.feature_level}"
        _pack(Path(bucket), folder / f"{name}.tar.gz")
    (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(expected), indent=1) + b"\n")
    print(f"wrote {folder / name}.tar.gz and .json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
