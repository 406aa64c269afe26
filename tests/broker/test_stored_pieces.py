"""Stored row groups are read ahead for a consumer that reads on, within a bound, and never read in vain twice."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.broker.brokers import until
from tests.storage.record_tables import record_table
from tests.storage.topic_segments import made_segment, span_in

from tidelog.services.broker.read.stored_pieces import StoredPieces
from tidelog.storage.errors import NotFound, Unavailable
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.object_store import ByteRange, StoredObject
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.segments.span_groups import GroupBounds
from tidelog.storage.stores.memory import MemoryObjectStore

GROUPS, GROUP, SIZE = 6, 10, 1_000
ONE_GROUP = GroupBounds(GROUP * (SIZE + 100), GROUP)
THREE_GROUPS = GroupBounds(3 * ONE_GROUP.bytes_max, 3 * GROUP)
STORED_BYTES = GROUP * SIZE * 5 // 4
"""A little more than a row group takes as stored."""


class Held(MemoryObjectStore):
    """Ranges are answered only while `open` is set, and fail while `fault` is; `ranges` counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.ranges, self.fault = asyncio.Event(), 0, False
        self.open.set()

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        if byte_range is not None and byte_range.start >= 0:
            self.ranges += 1
            await self.open.wait()
            if self.fault:
                raise Unavailable("the store is slow")
        return await super().get(key, byte_range)


class Scene:
    def __init__(self, bytes_max: int = 3 * STORED_BYTES, reads: int = 4) -> None:
        noise = random.Random(1)
        self.store = Held()
        offsets = range(GROUPS * GROUP)
        self.table = record_table(offsets, [(None, noise.randbytes(SIZE), None) for _ in offsets])
        self.made = made_segment({0: self.table}, ends=range(GROUP, GROUPS * GROUP + 1, GROUP))
        self.reads = asyncio.Semaphore(reads)
        self.pieces = StoredPieces(SegmentReader(self.store), self.reads, bytes_max)

    @property
    def found(self) -> FoundSpan:
        return span_in(self.made.segment, 0)

    async def ready(self) -> Scene:
        """The segment is stored, and its footer is in memory."""
        await self.store.create(self.made.segment.key, self.made.body)
        await self.read(0)
        self.store.ranges = 0
        return self

    async def read(self, offset: int, bounds: GroupBounds = ONE_GROUP) -> int:
        """The offset after the row groups that a read returns."""
        found = await self.pieces.read(self.found, offset, bounds)
        assert found is not None
        assert found.offset == offset
        return found.next_offset

    def ahead(self, offset: int) -> None:
        self.pieces.read_ahead(self.found, offset, ONE_GROUP)


async def test_what_was_read_ahead_is_not_read_again() -> None:
    scene = await Scene().ready()
    scene.ahead(GROUP)
    scene.ahead(GROUP)
    await until(lambda: scene.store.ranges == 1)
    assert await scene.read(GROUP) == 2 * GROUP
    assert scene.store.ranges == 1
    assert await scene.read(GROUP) == 2 * GROUP
    assert scene.store.ranges == 2, "it is given out once"


async def test_a_read_joins_one_that_is_under_way() -> None:
    scene = await Scene().ready()
    scene.store.open.clear()
    scene.ahead(GROUP)
    reading = asyncio.create_task(scene.read(GROUP))
    await until(lambda: scene.store.ranges == 1)
    scene.store.open.set()
    assert await reading == 2 * GROUP
    assert scene.store.ranges == 1


async def test_smaller_bounds_than_those_of_the_read_ahead_hold() -> None:
    scene = await Scene().ready()
    scene.pieces.read_ahead(scene.found, 0, THREE_GROUPS)
    assert await scene.read(0) == GROUP
    scene.pieces.read_ahead(scene.found, 0, THREE_GROUPS)
    assert await scene.read(0, GroupBounds(ONE_GROUP.bytes_max, 5 * GROUP)) == GROUP


async def test_the_longest_waiting_makes_room() -> None:
    scene = await Scene(bytes_max=2 * STORED_BYTES).ready()
    scene.store.open.clear()
    for number in range(GROUPS):
        scene.ahead(number * GROUP)
        await asyncio.sleep(0)
    scene.store.open.set()
    assert [await scene.read(number * GROUP) for number in range(GROUPS)] == [
        (number + 1) * GROUP for number in range(GROUPS)
    ]
    assert scene.store.ranges >= GROUPS - 2


@pytest.mark.parametrize(("bytes_max", "reads"), [(GROUP * SIZE, 4), (STORED_BYTES, 0)], ids=["bytes", "reads"])
async def test_nothing_is_read_ahead_without_room(bytes_max: int, reads: int) -> None:
    scene = await Scene(bytes_max).ready()
    for _ in range(4 - reads):
        await scene.reads.acquire()
    scene.ahead(GROUP)
    await asyncio.sleep(0.01)
    assert scene.store.ranges == 0


async def test_an_error_ahead_is_that_of_the_read_only_if_it_lasts() -> None:
    scene = await Scene().ready()
    scene.store.fault = True
    scene.ahead(GROUP)
    await until(lambda: scene.store.ranges == 1)
    with pytest.raises(Unavailable):
        await scene.read(GROUP)
    scene.ahead(GROUP)
    await until(lambda: scene.store.ranges == 3)
    scene.store.fault = False
    assert await scene.read(GROUP) == 2 * GROUP
    await scene.store.delete(scene.made.segment.key)
    scene.ahead(2 * GROUP)
    with pytest.raises(NotFound):
        await scene.read(2 * GROUP)
