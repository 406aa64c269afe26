"""Row groups of a span as they are stored: which ones, and none of them unchecked."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.storage.record_tables import record_table
from tests.storage.topic_segments import made_segment, span_in

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.segments.span_groups import GroupBounds
from tidelog.storage.segments.stored_groups import WholeGroups
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

GROUP, SIZE = 50, 1_000
OFFSETS = [offset for offset in range(100, 330) if not 160 <= offset < 190]
"""Four row groups of the large partition; compaction removed some records of the second one."""
ALL = {"bytes_max": 1 << 30, "records_max": 1 << 30}


def rows(offsets: list[int]) -> pa.Table:
    noise = random.Random(3)
    return record_table(offsets, [(None, noise.randbytes(SIZE), None) for _ in offsets])


class Scene:
    """Partition 4 has row groups of its own; 5 and 6 share one."""

    def __init__(self) -> None:
        parts = {4: rows(OFFSETS), 5: rows(list(range(10))), 6: rows(list(range(10)))}
        self.made = made_segment(parts, ends=[50, 100, 150, 200, 220])
        self.store = MemoryObjectStore()
        self.counting = CountingObjectStore(self.store)
        self.reader = SegmentReader(self.counting)

    def found(self, partition: int) -> FoundSpan:
        return span_in(self.made.segment, partition)

    async def write(self, body: bytes | None = None) -> Scene:
        await self.store.put(self.made.segment.key, bytes(self.made.body) if body is None else body)
        return self

    async def whole(self, offset: int, partition: int = 4, **bounds: int) -> WholeGroups | None:
        return await self.reader.read_whole(self.found(partition), offset, GroupBounds(**{**ALL, **bounds}))


async def read(offset: int, partition: int = 4, **bounds: int) -> WholeGroups | None:
    return await (await Scene().write()).whole(offset, partition, **bounds)


def numbers(whole: WholeGroups | None) -> list[int]:
    return [each.group.index for each in whole.groups] if whole else []


async def test_they_begin_with_the_one_that_holds_the_offset() -> None:
    assert numbers(await read(100)) == [0, 1, 2, 3]
    assert numbers(await read(149)) == [0, 1, 2, 3]
    assert numbers(await read(150)) == [1, 2, 3]
    assert numbers(await read(175)) == [1, 2, 3], "the record after a removed one"
    assert numbers(await read(329)) == [3]
    assert await read(330) is None


async def test_their_bounds_hold_for_all_their_rows() -> None:
    assert numbers(await read(100, records_max=100)) == [0, 1]
    assert numbers(await read(149, records_max=99)) == [0]
    assert await read(149, records_max=49) is None
    assert numbers(await read(100, bytes_max=3 * GROUP * (SIZE + 100))) == [0, 1, 2]
    assert await read(100, bytes_max=GROUP * SIZE - 1) is None
    assert numbers(await read(100, bytes_max=GROUP * SIZE - 1, first_bytes_max=GROUP * (SIZE + 100))) == [0]


async def test_a_row_group_with_other_partitions_is_not_handed_out() -> None:
    assert await read(0, partition=5) is None
    assert await read(0, partition=6) is None


async def test_they_say_how_many_records_and_where_reading_continues() -> None:
    for offset, records_max, expected in ((100, 100, (100, 230)), (120, 50, (30, 150)), (300, 50, (30, 330))):
        whole = await read(offset, records_max=records_max)
        assert whole is not None
        assert (whole.records, whole.next_offset) == expected


async def test_one_range_is_read_when_the_footer_is_known() -> None:
    scene = await Scene().write()
    await scene.whole(100)
    before = scene.counting.usage()
    assert numbers(await scene.whole(100)) == [0, 1, 2, 3]
    assert (scene.counting.usage() - before).requests(Verb.GET) == 1


async def test_every_byte_is_checked() -> None:
    body = bytearray(Scene().made.body)
    group = (await (await Scene().write()).whole(100)).groups[2].group  # type: ignore[union-attr]
    for place in (group.start, (group.start + group.end) // 2, group.end - 1):
        damaged = bytearray(body)
        damaged[place] ^= 1
        scene = await Scene().write(bytes(damaged))
        assert numbers(await scene.whole(100, records_max=100)) == [0, 1]
        with pytest.raises(Corrupt, match="row group 2 does not have its checksum"):
            await scene.whole(100)


async def test_rows_of_another_partition_than_the_manifest_says_are_refused() -> None:
    scene = await Scene().write()
    whole = await scene.whole(100)
    assert whole is not None
    with pytest.raises(Corrupt, match="records of another partition where its manifest has 5"):
        whole.check(5)


async def test_a_missing_segment_is_not_found() -> None:
    with pytest.raises(NotFound):
        await Scene().whole(100)
