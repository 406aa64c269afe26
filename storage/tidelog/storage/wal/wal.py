"""The write-ahead log of one shard: an object log of entries, and the floor where the log begins.

The log of a shard is every entry from the **floor** on, without a gap. Entries below the floor are archived; their
objects are garbage and are deleted after a grace (inv. 6). A deletion frees the number, so a writer that stalled for
long may create that number again. Its entry is **below the floor and therefore not in the log**, although the writer's
create succeeded. The floor also carries the highest epoch below it, so that a log whose entries are all deleted still
knows that epoch (inv. 3).

The floor only rises. The shard's manifest holds it, so one append both lists the archived records and moves the floor
(`floor`, `archive.archiver`).

A process that reads several entries by number, to replay or to archive them, must read the floor once more at the end
and discard the entries below it: they may have been deleted, and created again by a stalled writer, in between.

`wal_writer.WalWriter` appends; `wal_tail` finds the end of the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.layout import wal_prefix, wal_suffix
from tidelog.storage.object_log import EntryInfo, ObjectLog
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.wal.floor import Floor, Floors
from tidelog.storage.wal.stored_entry import StoredEntry
from tidelog.storage.wal.wal_entry import PreparedEntry, WalCodec, WalEntry, WalHeader

HEADER_TAIL_BYTES = 64 * 1024
"""The part of an entry's end that is read first for its header. The footer of an ordinary entry fits."""
HEADER_TAIL_BYTES_MAX = 16 * 1024 * 1024
"""The most that is read first, however long the footers of this log have been."""


class Wal:
    """The write-ahead log of `shard`, whose floor comes from `floors`. Raises `Corrupt`, naming the object, for an
    entry of another log or number."""

    def __init__(self, store: ObjectStore, shard: int, codec: WalCodec, floors: Floors) -> None:
        self.shard = shard
        self.codec = codec
        self.log = ObjectLog(store, wal_prefix(shard), wal_suffix())
        self._floors = floors
        self._floor_seen = 0
        self._header_tail_bytes = HEADER_TAIL_BYTES

    def key(self, seq: int) -> str:
        """The key of entry `seq`."""
        return self.log.key(seq)

    async def floor(self) -> Floor:
        """The current floor. Raises `Unavailable`, `Corrupt`."""
        floor = await self._floors.floor()
        self._floor_seen = max(self._floor_seen, floor.number)
        return floor

    def entries(self, start: int = 0) -> AsyncIterator[EntryInfo]:
        """Numbers and sizes of the entries from `start` on; one request per page."""
        return self.log.entries(start)

    async def header(self, seq: int) -> WalHeader:
        """The header of entry `seq`, from its last bytes: one request, or two if its footer is long. Raises
        `NotFound`."""
        return (await self.header_and_size(seq))[0]

    async def header_and_size(self, seq: int) -> tuple[WalHeader, int]:
        """`header`, and the size of the whole object in bytes."""
        key = self.key(seq)
        stored = await self.log.read(seq, ByteRange(-self._header_tail_bytes))
        needed_bytes = self.codec.header_bytes(key, stored.data)
        if needed_bytes > stored.info.size:
            raise Corrupt(key, f"its header takes {needed_bytes} bytes, the object has {stored.info.size}")
        if needed_bytes > len(stored.data):
            self._header_tail_bytes = min(2 * needed_bytes, HEADER_TAIL_BYTES_MAX)
            stored = await self.log.read(seq, ByteRange(-needed_bytes))
        return self._own(seq, self.codec.decode_header(key, stored.data)), stored.info.size

    async def read(self, seq: int) -> WalEntry:
        """The whole of entry `seq`, checked. One request. Raises `NotFound`."""
        return self.decode(seq, (await self.log.read(seq)).data)

    def decode(self, seq: int, data: bytes) -> WalEntry:
        """Entry `seq` from its bytes, checked. A large entry takes about ten milliseconds: on an event loop, read with
        `log.read` and decode in a thread."""
        entry = self.codec.decode(self.key(seq), data)
        self._own(seq, entry.header)
        return entry

    def stored(self, seq: int, data: bytes) -> StoredEntry:
        """Entry `seq` from its bytes, checked and not decoded. On an event loop, call it in a thread."""
        entry = StoredEntry(self.key(seq), data)
        self._own(seq, entry.header)
        return entry

    async def create(self, entry: PreparedEntry) -> None:
        """One PUT of `entry` under its number. Raises `Conflict`. Only `WalWriter` may call this: success alone does
        not mean that the entry is committed (`commit_fsm`)."""
        await self.log.create(entry.header.seq, entry.body)

    async def delete_below(self, number: int) -> int:
        """Remove all entries below `number`, and return how many there were. Raises `Invalid` unless the floor has
        passed them (inv. 6). The caller waits for the grace first."""
        if number > self._floor_seen:
            await self.floor()
        if number > self._floor_seen:
            raise Invalid(f"{self.key(number - 1)} is in the log, whose floor is {self._floor_seen}")
        deleted = 0
        resume: str | None = self.log.before(0)
        while resume is not None:
            page = await self.log.page(resume)
            below = [entry.number for entry in page.entries if entry.number < number]
            await self.log.delete_many(below)
            deleted += len(below)
            resume = page.resume if len(below) == len(page.entries) else None
        return deleted

    def _own(self, seq: int, header: WalHeader) -> WalHeader:
        if (header.shard, header.seq) != (self.shard, seq):
            raise Corrupt(self.key(seq), f"holds entry {header.seq} of shard {header.shard}")
        return header
