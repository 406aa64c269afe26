"""Log compaction: what stays, what goes, and what is not even written again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.upkeep.compaction_scenes import Partition, Write

DAY_MS = 86_400_000


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "spill")


def puts(keys: str, value: str = "v") -> list[Write]:
    """A record of each letter; a capital one deletes its key."""
    return [(key.lower().encode(), None if key.isupper() else f"{value}-{key}".encode()) for key in keys]


async def offsets_of(partition: Partition) -> list[int]:
    offsets: list[int] = (await partition.records())["offset"].to_pylist()
    return offsets


async def test_the_newest_record_of_each_key_stays_at_its_offset(partition: Partition) -> None:
    await partition.append(puts("abca"))
    await partition.append(puts("bda"))
    manifest = await partition.compact()
    assert manifest is not None
    assert await offsets_of(partition) == [2, 4, 5, 6]
    assert (manifest.clean_end, manifest.cold_end) == (7, 7)
    await partition.check()


async def test_a_segment_that_loses_nothing_keeps_its_object(partition: Partition) -> None:
    for keys in ("ab", "xy", "ac"):
        await partition.append(puts(keys))
    before = (await partition.manifest()).segments
    manifest = await partition.compact()
    assert manifest is not None
    assert manifest.segments[1:] == before[1:]
    assert manifest.segments[0].key != before[0].key
    await partition.check()
