"""Appends each batch of a sink to the log once, however often and by how many processes it is committed.

A batch goes through these steps. A process may end between any two of them; the next one that commits the same batch
continues.

    1. tasks stage their rows                      garbage until step 2
    2. `committed` is created, if it is absent     decides which staged rows the batch appends; sequences follow from it
    3. the parts are published                     idempotent produces: a part that is in the log is not appended again
    4. `published` is created                      from now on the batch is never published again
    5. staged objects are deleted, and older marks

Spark repeats a batch if the driver ended before Spark's own record of it. Then step 2 finds a mark: the set that it
names counts, and the rows that were staged again are garbage.

Hazard: a driver that stalls before step 2 until the marks of its batch are deleted would create a second mark for it.
Defence: it lists the marks once more after step 2. Marks of a batch are deleted only after a later batch is published,
and the marks of the newest batch are never deleted, so it sees the later one and stops.

Hazard: brokers forget producers (`producer.id.expiration.ms`). Parts that were appended before would be appended again.
Defence: a produce says how old the mark is, by the store's clock. The leader refuses it if it does not know the
producer and may have forgotten it. Then the stream stops with an error; the rows are not appended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from tidelog.spark_connector.sinks.committed_batch import (
    CommittedBatch,
    StagedPart,
    commit_after,
    decode_batch,
    encode_batch,
    sends_of,
)
from tidelog.spark_connector.sinks.part_publishing import Connect, PartPublisher
from tidelog.spark_connector.sinks.staging_area import StagingArea
from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.layout import COMMITTED, PUBLISHED
from tidelog.storage.runtime import Runtime
from tidelog.wire.staging import StagedObject

LANES_AT_ONCE = 8
"""Partitions that are published at the same time."""
REPLAYED = "replayed-"
"""An object whose time is that of a repeated commit, by the store's clock."""
ROUNDS_MAX = 5
"""A commit begins again if another process has created a mark meanwhile."""

logger = logging.getLogger("tidelog.spark.sink")


def publish_lanes(publisher: PartPublisher, committed: CommittedBatch, began_s: float) -> None:
    """Publish all parts, those of several partitions at the same time."""
    lanes = sends_of(committed)
    with ThreadPoolExecutor(min(LANES_AT_ONCE, max(1, len(lanes)))) as threads:
        for _ in threads.map(lambda lane: publisher.publish(committed, lane, began_s), lanes):
            pass


def publish_once(connect: Connect, area: StagingArea, runtime: Runtime, parts: Sequence[StagedPart]) -> None:
    """Publish `parts` without marks: no other process will continue this write. Deletes what was staged."""
    publisher, began_s = PartPublisher(connect, area.sink, runtime.clock), runtime.clock.monotonic()
    publish_lanes(publisher, commit_after(area.sink, {}, 0, parts), began_s)
    area.delete_all()


@dataclass(frozen=True)
class Marks:
    """The newest batch with each mark of a sink; -1: none."""

    committed: int
    published: int

    @classmethod
    def of(cls, objects: Sequence[StagedObject]) -> Marks:
        newest = {COMMITTED: -1, PUBLISHED: -1}
        for each in objects:
            if each.name in newest:
                newest[each.name] = max(newest[each.name], each.batch)
        return cls(newest[COMMITTED], newest[PUBLISHED])


class SinkCommit:
    """Commits batches of the stream whose objects are in `area`. `first_batch`: see `sink_options`."""

    def __init__(self, connect: Connect, area: StagingArea, runtime: Runtime, first_batch: int = 0) -> None:
        self._area = area
        self._runtime = runtime
        self._first_batch = first_batch
        self._publisher = PartPublisher(connect, area.sink, runtime.clock)

    def commit(self, batch: int, parts: Sequence[StagedPart]) -> None:
        """Return when the batch is in the log once: with `parts`, or with those of an earlier attempt. Raises
        `Conflict` if brokers may have forgotten what they appended, `Unavailable`, `NotFound`, `Invalid`."""
        for _ in range(ROUNDS_MAX):
            if self._commit_once(batch, parts):
                return
        raise Conflict(f"several processes commit batch {batch} of sink {self._area.sink}: let one of them run")

    def _commit_once(self, batch: int, parts: Sequence[StagedPart]) -> bool:
        """False if a mark has to be looked at again."""
        began_s = self._runtime.clock.monotonic()
        marks = Marks.of(self._area.objects())
        if marks.committed > marks.published:
            self._finish(marks.committed)
        if batch <= marks.committed:
            logger.info("batch %d of sink %s was committed before", batch, self._area.sink)
            self._area.delete_before(marks.committed, COMMITTED)
            return True
        if marks.committed >= 0 and not parts:
            return True
        committed = self._next(marks.committed, batch, parts)
        if not self._area.create(batch, COMMITTED, encode_batch(committed)):
            return False
        if Marks.of(self._area.objects()).committed != batch:
            return False
        self._publish(committed, began_s)
        return True

    def _next(self, newest: int, batch: int, parts: Sequence[StagedPart]) -> CommittedBatch:
        if newest < 0:
            self._check_first(batch)
            return commit_after(f"{self._area.sink}.{self._runtime.entropy.new_id()[:16]}", {}, batch, parts)
        before = self._read(newest)
        return commit_after(before.producer, before.next_sequences, batch, parts)

    def _check_first(self, batch: int) -> None:
        if batch > self._first_batch:
            raise Conflict(
                f"nothing is known of the batches before {batch} of sink {self._area.sink}: their marks are not in the "
                f"bucket, so this batch may be in the log already. If it is not, as for a stream that wrote elsewhere "
                f"before, set the option firstBatch={batch}"
            )

    def _read(self, batch: int) -> CommittedBatch:
        name = f"batch {batch} of sink {self._area.sink}"
        committed = decode_batch(name, self._area.read(batch, COMMITTED))
        if committed.batch != batch:
            raise Corrupt(name, f"its mark says that it is batch {committed.batch}")
        return committed

    def _finish(self, batch: int) -> None:
        """Publish a batch that an earlier process committed."""
        began_s = self._runtime.clock.monotonic()
        self._area.create(batch, f"{REPLAYED}{self._runtime.entropy.new_id()}", b"")
        written_ms = {each.name: each.modified_ms for each in self._area.objects() if each.batch == batch}
        if COMMITTED not in written_ms:
            return  # another process has published it, and a later one
        now_ms = max(time_ms for name, time_ms in written_ms.items() if name.startswith(REPLAYED))
        logger.info("batch %d of sink %s was committed before: publishing what is left of it", batch, self._area.sink)
        self._publish(self._read(batch), began_s - max(0, now_ms - written_ms[COMMITTED]) / 1000)

    def _publish(self, committed: CommittedBatch, began_s: float) -> None:
        """`began_s`: when the first attempt began, by this process's clock."""
        try:
            publish_lanes(self._publisher, committed, began_s)
        except NotFound:
            if Marks.of(self._area.objects()).published < committed.batch:
                raise
            return  # another process has published the batch, and deleted its objects
        self._area.create(committed.batch, PUBLISHED, msgspec.json.encode({"format_version": 1}))
        self._area.delete_before(committed.batch, COMMITTED)
