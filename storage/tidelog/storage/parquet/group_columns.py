"""Decodes columns of a row group by pages: only the pages with the wanted rows are checked and decoded.

    columns = GroupColumns(key, schema, footer, group, data, pages)
    few = columns.decode(["offset", "value"], first_row, end_row)

`data` are the row group's bytes, from its beginning on; it may end after the wanted pages. A page is compared with its
checksum, if it has one (`page_map`). Otherwise the whole row group was checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.column_pages import ColumnPage
from tidelog.storage.parquet.made_file import made_file, part_of_chunk, whole_chunk
from tidelog.storage.parquet.page_map import GroupPages
from tidelog.storage.parquet.parquet_format import Footer, RowGroup, parsing
from tidelog.storage.parquet.stored_columns import leaves_of
from tidelog.storage.parquet.thrift_compact import I64, Listed, Struct

Column: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"


@dataclass(frozen=True)
class GroupColumns:
    """The columns of `schema` in row group `group` of the object `key`, with the `pages` of all columns."""

    key: str
    schema: pa.Schema
    footer: Footer
    group: RowGroup
    data: memoryview
    pages: GroupPages

    @cached_property
    def absent(self) -> frozenset[str]:
        """The columns in which no record has a value."""
        return frozenset(
            name for name, leaves in self._leaves.items() if not any(self._rows_in(leaf) for leaf in leaves)
        )

    @cached_property
    def of_one_page(self) -> frozenset[str]:
        """The columns with values that can only be decoded whole."""
        names = (name for name, leaves in self._leaves.items() if all(len(self.pages[leaf]) == 1 for leaf in leaves))
        return frozenset(names) - self.absent

    def decode(self, names: Iterable[str], first_row: int, end_row: int) -> pa.Table:
        """The rows ``[first_row, end_row)``, at least one, of the columns `names`. Raises `Corrupt`."""
        found: dict[str, Column] = {}
        together: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        for name in names:
            if name in self.absent:
                found[name] = pa.nulls(end_row - first_row, self.schema.field(name).type)
            else:
                chosen = self._chosen(self._leaves[name][0], first_row, end_row)
                together[chosen[0].first_row, chosen[-1].next_row].append(name)
        for (first, end), some in together.items():
            rows = self._decoded(some, first, end).slice(first_row - first, end_row - first_row)
            found |= zip(some, rows.columns, strict=True)
        schema = pa.schema([self.schema.field(name) for name in found])
        return pa.Table.from_arrays(list(found.values()), schema=schema)

    @cached_property
    def _leaves(self) -> Mapping[str, range]:
        return {
            field.name: range(first, first + leaves_of(field.type))
            for field, first in zip(
                self.schema, (self.footer.columns[name].leaf for name in self.schema.names), strict=True
            )
        }

    def _rows_in(self, leaf: int) -> int:
        return sum(page.rows for page in self.pages[leaf])

    def _chosen(self, leaf: int, first_row: int, end_row: int) -> Sequence[ColumnPage]:
        """The pages with these rows. A column of lists is one page, also if one of its leaves has no value."""
        pages = self.pages[leaf]
        return [page for page in pages if page.first_row < end_row and first_row < page.next_row] or pages

    def _decoded(self, names: Sequence[str], first_row: int, end_row: int) -> pa.Table:
        """The rows of whole pages, in a file that is made of them. A file object in Python would wait for the GIL."""
        described, fields = self.footer.metadata.row_group(self.group.index), []
        chunks: list[Struct] = []
        for name in names:
            fields.append(self.footer.columns[name].field)
            for leaf in self._leaves[name]:
                chosen, chunk = self._chosen(leaf, first_row, end_row), described.column(leaf)
                if not all(page.is_sound(self.data) for page in chosen):
                    raise Corrupt(self.key, f"row group {self.group.index} does not have its checksum")
                if len(chosen) == len(self.pages[leaf]):
                    chunks.append(whole_chunk(chunk, -self.group.start))
                    continue
                raw_bytes = sum(page.raw_bytes for page in chosen)
                rows = chosen[-1].next_row - chosen[0].first_row
                chunks.append(part_of_chunk(chunk, rows, raw_bytes, chosen[0].start, chosen[-1].end))
        rows = end_row - first_row
        group = Struct({1: Listed(chunks), 2: I64(0), 3: I64(rows)})
        with parsing(self.key), made_file(pa.schema(fields), rows, [group], self.data) as file:
            table = file.read(use_threads=False)
        if table.num_rows != rows:
            raise Corrupt(self.key, f"has {table.num_rows} rows in pages of {rows}")
        return table
