"""Writes the index of a shard's log (`storage.wal.wal_index`) while the shard is led.

Writes run beside the commits, one PUT at a time. If a write fails, the next one, 32 entries later, contains the same
entries and more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor

from tidelog.storage.errors import TidelogError
from tidelog.storage.wal.wal_index import (
    INDEX_EVERY,
    IndexedEntry,
    IndexRow,
    WalIndex,
    block_start,
    encode_block,
    index_row,
)

_log = logging.getLogger(__name__)


class IndexKeeper:
    """Gets every committed entry, in order. Owned by the event loop."""

    def __init__(self, index: WalIndex, executor: Executor) -> None:
        self._index = index
        self._executor = executor
        self._rows: list[IndexRow] = []
        self._fresh: list[IndexedEntry] = []
        self._due: list[IndexedEntry] = []
        self._writing: asyncio.Task[None] | None = None
        self._floor = 0
        self._trimmed = 0

    def adopt(self, entries: Sequence[IndexedEntry]) -> None:
        """Start from the entries that were in the log before this leader. Those of the last block are written again
        with the entries that follow."""
        if entries:
            start = block_start(entries[-1].header.seq)
            self._fresh = [entry for entry in entries if entry.header.seq >= start]

    def committed(self, entry: IndexedEntry) -> None:
        self._fresh.append(entry)
        if (entry.header.seq + 1) % INDEX_EVERY == 0:
            self.flush()

    def flush(self) -> None:
        """Write all entries that are not written yet."""
        if not self._fresh:
            return
        self._due += self._fresh
        self._fresh = []
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_due())

    def floor_moved(self, floor: int) -> None:
        """Blocks that lie wholly below `floor` are deleted with the next write."""
        self._floor = floor

    async def close(self) -> None:
        """Stop. A block is written completely or not at all."""
        if self._writing:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def settled(self) -> None:
        """Return when no write is under way."""
        if self._writing:
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._due:
            added, self._due = self._due, []
            try:
                blocks = await loop.run_in_executor(self._executor, self._encode, added)
                for start, block in blocks:
                    await self._index.put(start, block)
                if block_start(self._floor) > self._trimmed:
                    await self._index.trim(self._floor)
                    self._trimmed = block_start(self._floor)
            except TidelogError as error:
                _log.info("cannot write the index of shard %d, later entries retry it: %s", self._index.shard, error)

    def _encode(self, added: Sequence[IndexedEntry]) -> list[tuple[int, memoryview]]:
        """The blocks that `added` completes or begins. The rows of the last block are kept for its next write."""
        rows = self._rows + [index_row(entry) for entry in added]
        starts = sorted({block_start(row.seq) for row in rows})
        self._rows = [row for row in rows if row.seq >= starts[-1]]
        by_start = {start: [row for row in rows if block_start(row.seq) == start] for start in starts}
        return [(start, encode_block(some)) for start, some in by_start.items()]
