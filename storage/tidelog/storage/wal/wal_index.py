"""An index of a write-ahead log, so that a new leader opens a long log with tens of requests.

A leader needs the header of each entry, and ten thousand footers take ten thousand requests. So the leader copies the
headers: **block** n is one object with the headers of entries ``[n * 1024, (n + 1) * 1024)``, and is written again at
every 32nd entry until it is full. A process that opens the log reads the blocks above the floor, and the footers of the
few entries after them.

    wal/0003/_index/00000000000000008192.parquet     entries 8192 to 9215, or as far as it was written

The index is a copy and proves nothing: without an index, or with a damaged one, a log opens slowly but correctly. A
block stays true, because a committed entry never changes (inv. 2) and a block has only committed entries. A fenced
leader that writes an older version of a block late only removes entries from it. Entries below the floor are skipped.
Only if somebody deletes entries from the bucket by hand can the index have entries that the log does not have. So a
process that opens a log checks that the last entry of the index is in the log, and discards the index if it is not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.formats import WAL_INDEX
from tidelog.storage.layout import index_prefix, number_of, numbered_key, wal_suffix
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.row_decoding import decode_parquet
from tidelog.storage.wal.wal_codec import decode_header_json, encode_header
from tidelog.storage.wal.wal_entry import WalHeader

BLOCK_ENTRIES = 1_024
INDEX_EVERY = 32
"""The number of entries between two writes of a block. Costs 3 % more PUTs on a busy log, none on an idle one."""

_FIELDS: list[pa.Field[Any]] = [
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
]
INDEX_SCHEMA = pa.schema(_FIELDS)
"""`value` is the entry's header as JSON, `size_bytes` the size of its object."""

_FLAVOR = ParquetFlavor(WAL_INDEX, INDEX_SCHEMA, zstd_levels=(1,), lengths_first=True, statistics=())

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexedEntry:
    """A committed entry, and the size of its object."""

    header: WalHeader
    size_bytes: int


@dataclass(frozen=True, slots=True)
class IndexRow:
    """An entry in the form of a block: a tenth of the memory of an `IndexedEntry`."""

    seq: int
    size_bytes: int
    header_json: bytes


def block_start(seq: int) -> int:
    """The first entry of the block of entry `seq`."""
    return seq - seq % BLOCK_ENTRIES


def index_row(entry: IndexedEntry) -> IndexRow:
    return IndexRow(entry.header.seq, entry.size_bytes, encode_header(entry.header))


def encode_block(rows: Sequence[IndexRow]) -> memoryview:
    """A block of one shard's log. Takes one or two milliseconds: on an event loop, call it in a thread."""
    columns: dict[str, list[Any]] = {
        "seq": [row.seq for row in rows],
        "size_bytes": [row.size_bytes for row in rows],
        "value": [row.header_json for row in rows],
    }
    return encode_parquet(_FLAVOR, pa.table(columns, INDEX_SCHEMA), b"{}")


def decode_block(key: str, data: bytes) -> list[IndexedEntry]:
    """The entries of a block. Raises `Corrupt` naming `key`."""
    _, table = decode_parquet(key, _FLAVOR, data)
    headers = [decode_header_json(key, cast(bytes, value)) for value in table["value"].to_pylist()]
    if [header.seq for header in headers] != table["seq"].to_pylist():
        raise Corrupt(key, "its headers are those of other entries")
    sizes = cast(list[int], table["size_bytes"].to_pylist())
    return [IndexedEntry(header, size_bytes) for header, size_bytes in zip(headers, sizes, strict=True)]


class WalIndex:
    """The index of `shard`'s log in `store`."""

    def __init__(self, store: ObjectStore, shard: int) -> None:
        self.shard = shard
        self._store = store
        self._prefix = index_prefix(shard)

    def key(self, start: int) -> str:
        """The key of the block that begins with entry `start`."""
        return numbered_key(self._prefix, start, wal_suffix())

    async def read(self, floor: int) -> list[IndexedEntry]:
        """The entries of the index from `floor` on, ascending: a listing, and one request per block. Raises
        `Unavailable`."""
        entries: list[IndexedEntry] = []
        for start in await self.blocks():
            if start + BLOCK_ENTRIES > floor:
                entries += [entry for entry in await self._read_block(start) if entry.header.seq >= floor]
        return entries

    async def blocks(self) -> list[int]:
        """The first entries of the existing blocks, ascending."""
        infos = await self._store.list(self._prefix)
        starts = (number_of(info.key, self._prefix, wal_suffix()) for info in infos)
        return [start for start in starts if start is not None]

    async def put(self, start: int, block: memoryview) -> None:
        """Write the block that begins with entry `start`. All its entries must be committed. Raises `Unavailable`."""
        await self._store.put(self.key(start), block)

    async def trim(self, floor: int) -> int:
        """Delete the blocks that lie wholly below `floor`, and return their number. Raises `Unavailable`."""
        below = [start for start in await self.blocks() if start + BLOCK_ENTRIES <= floor]
        for start in below:
            await self._store.delete(self.key(start))
        return len(below)

    async def discard(self) -> None:
        """Delete the whole index. Raises `Unavailable`."""
        for start in await self.blocks():
            await self._store.delete(self.key(start))

    async def _read_block(self, start: int) -> list[IndexedEntry]:
        key = self.key(start)
        try:
            entries = decode_block(key, (await self._store.get(key)).data)
        except NotFound:
            return []
        except Corrupt as error:
            _log.warning("the index of shard %d is damaged, so its entries are read one by one: %s", self.shard, error)
            return []
        return [entry for entry in entries if entry.header.shard == self.shard]
