"""A WAL entry as it is stored: checked, with its row groups, and decoded only when its rows are needed.

The archiver copies most row groups as they are. So every byte is compared with its checksum and the header with the
statistics of the row groups, but pages are decompressed only for the rows that are encoded again.
"""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.parquet_format import decode_parquet
from tidelog.storage.parquet.row_group_copy import CopySource
from tidelog.storage.wal.wal_codec import WAL_FLAVOR, decode_header_json
from tidelog.storage.wal.wal_entry import Span


class StoredEntry:
    """The object `key` with the bytes `data`. `group_ends`: the rows before which its row groups end; `group_bytes`:
    their uncompressed bytes. Raises `Corrupt`, also if the statistics of the row groups contradict a span (inv. 4). It
    takes some milliseconds: on an event loop, make it in a thread."""

    def __init__(self, key: str, data: bytes) -> None:
        self.key = key
        self.source = CopySource(key, WAL_FLAVOR, data)
        self.header = decode_header_json(key, self.source.footer.header_json)
        self.stored_bytes = len(data)
        groups = self.source.footer.row_groups
        self.group_bytes = [group.raw_bytes for group in groups]
        self.group_ends: list[int] = []
        rows = 0
        for group in groups:
            rows += group.rows
            self.group_ends.append(rows)
        self.source.check()
        if rows != sum(span.count for span in self.header.spans):
            raise Corrupt(key, f"its spans do not count its {rows} rows")
        self._groups = {span: self._found(span) for span in self.header.spans}
        self._data = data

    @cached_property
    def records(self) -> pa.Table:
        """All its records (`STORED_SCHEMA`). Raises `Corrupt`."""
        return decode_parquet(self.key, WAL_FLAVOR, self._data)[1]

    def groups_of(self, span: Span) -> range | None:
        """The row groups that hold the rows of `span` and no others; None if there are none."""
        return self._groups[span]

    def _found(self, span: Span) -> range | None:
        first, end = self._begins.get(span.first_row), self._ends.get(span.first_row + span.count)
        if first is None or end is None:
            return None
        offset = span.base_offset
        for group in self.source.footer.row_groups[first:end]:
            partitions, offsets = group.bounds[0], group.bounds[1]
            number = span.topic_partition.partition
            if partitions != (number, number) or offsets != (offset, offset + group.rows - 1):
                raise Corrupt(self.key, f"row group {group.index} does not hold the offsets of its span (inv. 4)")
            offset += group.rows
        return range(first, end)

    @cached_property
    def _begins(self) -> dict[int, int]:
        return {first: group for group, first in enumerate([0, *self.group_ends[:-1]])}

    @cached_property
    def _ends(self) -> dict[int, int]:
        return {end: group + 1 for group, end in enumerate(self.group_ends)}
