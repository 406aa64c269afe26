"""Makes a Parquet file of row groups of stored objects, of which only these row groups are in memory.

    pieces = extracted_file(STORED_SCHEMA, [ExtractedGroups(footer, groups, data), ...])

The answer to a fetch hands out stored row groups this way (`docs/http-api.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.parquet.made_file import made_footer, whole_chunk
from tidelog.storage.parquet.parquet_format import MAGIC, Footer, RowGroup
from tidelog.storage.parquet.thrift_compact import I64, Listed, Struct


@dataclass(frozen=True)
class ExtractedGroups:
    """Some consecutive row groups, at least one, of the object with `footer`; `data` are their bytes, checked."""

    footer: Footer
    groups: Sequence[RowGroup]
    data: memoryview


def extracted_file(schema: pa.Schema, parts: Sequence[ExtractedGroups]) -> Sequence[memoryview]:
    """The file with the row groups of `parts`, at least one, in their order, as pieces. All have the columns of
    `schema`. The row groups are not copied."""
    position, groups = len(MAGIC), []
    for part in parts:
        moved_by = position - part.groups[0].start
        groups += [_described(part.footer.metadata.row_group(each.index), each, moved_by) for each in part.groups]
        position += len(part.data)
    rows = sum(each.rows for part in parts for each in part.groups)
    end = made_footer(schema, rows, groups)
    return [memoryview(MAGIC), *(part.data for part in parts), memoryview(end)]


def _described(group: pq.RowGroupMetaData, stored: RowGroup, moved_by: int) -> Struct:
    return Struct(
        {
            1: Listed([whole_chunk(group.column(place), moved_by) for place in range(group.num_columns)]),
            2: I64(stored.raw_bytes),
            3: I64(stored.rows),
            5: I64(stored.start + moved_by),
            6: I64(stored.end - stored.start),
        }
    )
