"""A reader of the simulation: follows every partition through the archive and the log, directly in the bucket.

It reads segments with the product's `SegmentReader`, slowly, by a plan: the manifest that was the newest when it began.
If a segment of an old plan does not exist any more, it plans again.
"""

from __future__ import annotations

from tests.simulation.batches import PARTITIONS, TOPICS, Placed, placed_in, topic_id_of
from tests.simulation.truth import Truth

from tidelog.storage.errors import Conflict, NotFound, Unavailable
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.partition_view import view_of
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal import Wal

PAUSE_S_MAX = 0.4
BEGINS_S_MAX = 2.0
THINKING_SHARE = 0.4
THINKING_S_MAX = 1.5
"""How often, and how long, it does something else before it follows its plan: longer than the grace."""


class Reader:
    """Reads each record once, in order, and reports it to `truth`."""

    def __init__(self, store: ObjectStore, runtime: Runtime, wal: Wal, log: ShardLog, truth: Truth) -> None:
        self.positions: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self._wal = wal
        self._log = log
        self._segments = SegmentReader(store)
        self._runtime = runtime
        self._truth = truth
        self._plan: ShardManifest | None = None

    async def run(self) -> None:
        """Follow without end, from a moment on when something may be archived already."""
        await self._runtime.clock.sleep(self._runtime.entropy.uniform(0, BEGINS_S_MAX))
        while True:
            await self._runtime.clock.sleep(self._runtime.entropy.uniform(0, PAUSE_S_MAX))
            try:
                await self.catch_up()
            except (Conflict, Unavailable):
                continue
            except NotFound:
                self.lost_a_segment()

    async def catch_up(self) -> None:
        """Read some records that the plan says are archived. If there are none, read the log and end the plan."""
        if self._plan is None:
            self._plan = await self._log.with_lists(await self._log.newest(), TOPICS)
            if self._runtime.entropy.uniform(0, 1) < THINKING_SHARE:
                await self._runtime.clock.sleep(self._runtime.entropy.uniform(0, THINKING_S_MAX))
        if await self._read_archive(self._plan):
            return
        floor, self._plan = self._plan.floor, None
        hot: list[Placed] = []
        async for info in self._wal.entries(floor.number):
            hot.extend(placed_in((await self._wal.read(info.number)).header))
        if await self.still_in_log(floor):
            for placed in hot:
                self._take_hot(placed)

    def lost_a_segment(self) -> None:
        """A segment or an entry of the plan does not exist any more: plan again."""
        self._truth.seen["planned again"] += 1
        self._plan = None

    async def still_in_log(self, floor: Floor) -> bool:
        """Whether no entry read since `floor` can have been deleted and created again."""
        return (await self._wal.floor()).number == floor.number

    async def _read_archive(self, plan: ShardManifest) -> bool:
        """Read the next span of each partition. Returns whether there was any."""
        some = False
        for partition in range(PARTITIONS):
            view = view_of(plan, TopicPartition(topic_id_of(partition), partition))
            self._skip(partition, view.log_start_offset)
            if (found := view.find(self.positions[partition])) is None:
                self._skip(partition, view.cold_end)
                continue
            some = True
            records = await self._segments.read(found, self.positions[partition])
            for offset, value in zip(*(records[name].to_pylist() for name in ("offset", "value")), strict=True):
                self._skip(partition, offset)
                self._take(partition, offset, value)
        return some

    def _take_hot(self, placed: Placed) -> None:
        partition = placed.batch.partition
        for offset in range(max(placed.base_offset, self.positions[partition]), placed.next_offset):
            self._skip(partition, offset)
            self._take(partition, offset, placed.batch.value)

    def _take(self, partition: int, offset: int, value: bytes) -> None:
        if offset == self.positions[partition]:
            self._truth.was_read(partition, offset, value)
            self.positions[partition] = offset + 1

    def _skip(self, partition: int, offset: int) -> None:
        """The records before `offset` are not in the log any more."""
        position = self.positions[partition]
        if offset > position:
            self._truth.was_skipped(partition, position, offset)
            self.positions[partition] = offset
