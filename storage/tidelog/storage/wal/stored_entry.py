"""A WAL entry as it is stored: checked, with its row groups, which are decoded only when their rows are needed.

The archiver copies most row groups as they are. So every byte is compared with its checksum and the header with the
statistics of the row groups, but pages are decompressed only for the rows that are encoded again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from threading import Lock

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.row_decoding import decode_rows
from tidelog.storage.parquet.row_group_copy import CopySource
from tidelog.storage.wal.wal_codec import WAL_FLAVOR, decode_header_json
from tidelog.storage.wal.wal_entry import Span


class StoredEntry:
    """The object `key` with the bytes `data`. `group_ends`: the rows before which its row groups end; `group_bytes`:
    their uncompressed bytes; `own_groups`: for each span of the header, the row groups that hold its rows and no others
    (None: there are none, or they cannot be copied, because the entry has other columns than a segment). Raises
    `Corrupt`, also if the statistics of the row groups contradict a span (inv. 4). It takes some milliseconds: on an
    event loop, make it in a thread. Threads may share it."""

    def __init__(self, key: str, data: bytes) -> None:
        self.key = key
        self.source = CopySource(key, WAL_FLAVOR, data)
        self.header = decode_header_json(key, self.source.footer.header_json)
        self.stored_bytes = len(data)
        groups = self.source.footer.row_groups
        self.group_bytes = [group.raw_bytes for group in groups]
        self.group_ends = list(accumulate(group.rows for group in groups))
        self.source.check()
        rows = self.source.footer.rows
        if rows != sum(span.count for span in self.header.spans):
            raise Corrupt(key, f"its spans do not count its {rows} rows")
        self.own_groups = list(self._own_groups())
        self._decoding = Lock()
        self._decoded: dict[int, pa.Table] = {}

    @property
    def records(self) -> pa.Table:
        """All its records (`STORED_SCHEMA`). Raises `Corrupt`."""
        self.decode(range(len(self.group_ends)))
        return self.rows(0, self.source.footer.rows)

    def groups_over(self, first_row: int, end_row: int) -> range:
        """The row groups with the rows ``[first_row, end_row)``, at least one row."""
        return range(bisect_right(self.group_ends, first_row), 1 + bisect_left(self.group_ends, end_row))

    def decode(self, groups: Iterable[int]) -> None:
        """Decode row groups, each once. Many in one call cost less than one by one. Raises `Corrupt`."""
        with self._decoding:
            lacking = [self.source.footer.row_groups[index] for index in sorted(set(groups) - self._decoded.keys())]
            rows = decode_rows(self.key, WAL_FLAVOR, self.source.footer, lacking, self.source.body)
            first = 0
            for group in lacking:
                self._decoded[group.index] = rows.slice(first, group.rows)
                first += group.rows

    def rows(self, first_row: int, end_row: int) -> pa.Table:
        """The rows ``[first_row, end_row)`` (`STORED_SCHEMA`), of row groups that were decoded. Nothing is copied."""
        if first_row == end_row:
            return WAL_FLAVOR.schema.empty_table()
        groups = self.groups_over(first_row, end_row)
        begin = self.group_ends[groups.start - 1] if groups.start else 0
        held = pa.concat_tables([self._decoded[index] for index in groups])
        return held.slice(first_row - begin, end_row - first_row)

    def _own_groups(self) -> Iterator[range | None]:
        begins = {first: group for group, first in enumerate([0, *self.group_ends[:-1]])}
        ends = {end: group + 1 for group, end in enumerate(self.group_ends)}
        for span in self.header.spans:
            first, end = begins.get(span.first_row), ends.get(span.first_row + span.count)
            if first is None or end is None or not self.source.footer.has_only_ours:
                yield None
            else:
                self._check(span, range(first, end))
                yield range(first, end)

    def _check(self, span: Span, groups: range) -> None:
        """Raises `Corrupt` if the statistics of `groups` are not those of `span`."""
        offset, number = span.base_offset, span.topic_partition.partition
        for group in self.source.footer.row_groups[groups.start : groups.stop]:
            partitions, offsets = group.bounds[0], group.bounds[1]
            if partitions != (number, number) or offsets != (offset, offset + group.rows - 1):
                raise Corrupt(self.key, f"row group {group.index} does not hold the offsets of its span (inv. 4)")
            offset += group.rows
