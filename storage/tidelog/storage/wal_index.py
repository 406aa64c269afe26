"""An index of a write-ahead log, so that a new leader opens a long one with tens of requests.

What a leader has to know of each entry is its header, and reading ten thousand footers takes ten thousand requests.
So it keeps copies: the headers of entries ``[n * 1024, (n + 1) * 1024)`` lie together in one object, the **block** n,
which is written again at every 32nd entry until it is full. Whoever opens the log reads the blocks above the floor and
the footers of the few entries behind them.

    wal/0003/_index/00000000000000008192.parquet     entries 8192 to 9215, or as far as it was written

The index is a copy and proves nothing: without it, or with a damaged one, opening the log is slow and right. What a
block says is true for ever, since an entry never changes once it is committed (inv. 2) and only committed entries are
put in; a fenced leader that writes its older block late takes only entries away from it. Entries below the floor are
passed over. Only where entries were deleted from the bucket behind everybody's back may the index tell of a past that
the log has not; so whoever opens a log looks whether the last entry of the index is in it, and discards it if not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import index_prefix, number_of, numbered_key, wal_suffix
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import decode_parquet
from tidelog.storage.wal_codec import decode_header_json, encode_header
from tidelog.storage.wal_entry import WalHeader

BLOCK_ENTRIES = 1_024
INDEX_EVERY = 32
"""Entries between two writes of a block: 3 % more PUTs on a busy log, none on an idle one."""

_FIELDS: list[pa.Field[Any]] = [
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
]
INDEX_SCHEMA = pa.schema(_FIELDS)
"""`value` is the entry's header, as JSON; `size_bytes` that of the whole object."""

_FLAVOR = ParquetFlavor("wal-index/1", INDEX_SCHEMA, zstd_levels=(1,), lengths_first=True, statistics=())

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexedEntry:
    """A committed entry; `size_bytes` of its object."""

    header: WalHeader
    size_bytes: int


@dataclass(frozen=True, slots=True)
class IndexRow:
    """An entry as a block has it, a tenth of the memory of an `IndexedEntry`."""

    seq: int
    size_bytes: int
    header_json: bytes


def block_start(seq: int) -> int:
    """The first entry of the block that `seq` lies in."""
    return seq - seq % BLOCK_ENTRIES


def index_row(entry: IndexedEntry) -> IndexRow:
    return IndexRow(entry.header.seq, entry.size_bytes, encode_header(entry.header))


def encode_block(rows: Sequence[IndexRow]) -> memoryview:
    """A block of one shard's log: a millisecond or two, so an event loop does it in a thread."""
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
        raise Corrupt(key, "its headers are of other entries than it says")
    sizes = cast(list[int], table["size_bytes"].to_pylist())
    return [IndexedEntry(header, size_bytes) for header, size_bytes in zip(headers, sizes, strict=True)]


class WalIndex:
    """The index of `shard`'s log in `store`."""

    def __init__(self, store: ObjectStore, shard: int) -> None:
        self.shard = shard
        self._store = store
        self._prefix = index_prefix(shard)

    def key(self, start: int) -> str:
        """The name of the block that begins with entry `start`."""
        return numbered_key(self._prefix, start, wal_suffix())

    async def read(self, floor: int) -> list[IndexedEntry]:
        """The entries from `floor` on that the index knows, ascending: a listing and a request a block. Raises
        `Unavailable`."""
        entries: list[IndexedEntry] = []
        for start in await self.blocks():
            if start + BLOCK_ENTRIES > floor:
                entries += [entry for entry in await self._read_block(start) if entry.header.seq >= floor]
        return entries

    async def blocks(self) -> list[int]:
        """Where the blocks begin that are there, ascending."""
        infos = await self._store.list(self._prefix)
        starts = (number_of(info.key, self._prefix, wal_suffix()) for info in infos)
        return [start for start in starts if start is not None]

    async def put(self, start: int, block: memoryview) -> None:
        """Put the block that begins with entry `start`, all of whose entries are committed. Raises `Unavailable`."""
        await self._store.put(self.key(start), block)

    async def trim(self, floor: int) -> int:
        """Delete the blocks that lie wholly below `floor`; how many there were. Raises `Unavailable`."""
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
            _log.warning("the index of shard %d is damaged, its entries are read one by one: %s", self.shard, error)
            return []
        return [entry for entry in entries if entry.header.shard == self.shard]
