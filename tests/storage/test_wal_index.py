"""The index of a WAL: what it returns, and that errors in it do no harm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import TopicPartition
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_entry import EntryKind, ProducerMark, Span, WalHeader
from tidelog.storage.wal.wal_index import (
    BLOCK_ENTRIES,
    IndexedEntry,
    WalIndex,
    block_start,
    decode_block,
    encode_block,
    index_row,
)

SHARD = 3
PLACE = TopicPartition("ab" * 16, 4)


def entry(seq: int) -> IndexedEntry:
    mark = ProducerMark(PLACE, "meter", 2, 3 * seq, 3 * seq + 2, 3 * seq)
    header = WalHeader(
        EntryKind.RECORDS, SHARD, seq, 5, "writer", f"{seq:032x}", 1_000 + seq, (Span(PLACE, 3 * seq, 3, 0),), (mark,)
    )
    return IndexedEntry(header, 10 * seq)


def entries(first: int, end: int) -> list[IndexedEntry]:
    return [entry(seq) for seq in range(first, end)]


@pytest.fixture
def index() -> WalIndex:
    return WalIndex(MemoryObjectStore(), SHARD)


async def write(index: WalIndex, some: list[IndexedEntry]) -> None:
    for start in sorted({block_start(one.header.seq) for one in some}):
        rows = [index_row(one) for one in some if block_start(one.header.seq) == start]
        await index.put(start, encode_block(rows))


async def test_the_written_index_is_read_back_from_the_floor_on(index: WalIndex) -> None:
    written = entries(700, 2 * BLOCK_ENTRIES + 40)
    await write(index, written)
    assert await index.read(700) == written
    assert await index.read(BLOCK_ENTRIES + 5) == entries(BLOCK_ENTRIES + 5, 2 * BLOCK_ENTRIES + 40)
    assert await index.read(3 * BLOCK_ENTRIES) == []


async def test_a_log_without_an_index_has_none(index: WalIndex) -> None:
    assert await index.read(0) == []


async def test_entries_after_a_gap_are_reported_too(index: WalIndex) -> None:
    await write(index, entries(3, 50))
    await write(index, entries(BLOCK_ENTRIES, BLOCK_ENTRIES + 50))
    assert await index.read(0) == entries(3, 50) + entries(BLOCK_ENTRIES, BLOCK_ENTRIES + 50)


async def test_a_block_of_another_shard_is_not_believed(index: WalIndex) -> None:
    foreign = replace(entry(1), header=replace(entry(1).header, shard=9))
    await write(index, [entry(0), foreign, entry(2)])
    assert await index.read(0) == [entry(0), entry(2)]


@pytest.mark.parametrize("place", [0, 40, 300, -20, -1])
async def test_a_damaged_block_is_passed_over(index: WalIndex, place: int, caplog: pytest.LogCaptureFixture) -> None:
    block = bytearray(encode_block([index_row(one) for one in entries(0, 64)]))
    block[place] ^= 4
    await index.put(0, memoryview(bytes(block)))
    assert await index.read(0) == []
    assert "is damaged" in caplog.text


def test_a_block_whose_headers_are_of_other_entries_is_corrupt() -> None:
    rows = [replace(index_row(entry(7)), seq=8)]
    with pytest.raises(Corrupt, match="other entries"):
        decode_block("wal/0003/_index/x", bytes(encode_block(rows)))


async def test_blocks_wholly_below_the_floor_are_deleted(index: WalIndex) -> None:
    await write(index, entries(0, 2 * BLOCK_ENTRIES + 1))
    assert await index.trim(2 * BLOCK_ENTRIES - 1) == 1
    assert await index.blocks() == [BLOCK_ENTRIES, 2 * BLOCK_ENTRIES]
    assert await index.trim(2 * BLOCK_ENTRIES) == 1
    assert await index.read(2 * BLOCK_ENTRIES) == [entry(2 * BLOCK_ENTRIES)]
