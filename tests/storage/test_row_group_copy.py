"""Row groups that are copied without decoding: any Parquet reader finds the same records in the copy."""

from __future__ import annotations

import io
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.storage.errors import Corrupt, NewerFormat
from tidelog.storage.formats import Format
from tidelog.storage.parquet.parquet_encoder import encode_parquet, encode_row_groups
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor, settings_for
from tidelog.storage.parquet.row_decoding import decode_parquet
from tidelog.storage.parquet.row_group_copy import CopySource, RowGroupCopier

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False, metadata={b"PARQUET:field_id": b"1"}),
        pa.field("offset", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"2"}),
        pa.field("key", pa.binary(), metadata={b"PARQUET:field_id": b"4"}),
        pa.field("value", pa.binary(), metadata={b"PARQUET:field_id": b"5"}),
    ]
)
FLAVOR = ParquetFlavor(
    Format("test", 1, 1),
    SCHEMA,
    zstd_levels=(1,),
    lengths_first=False,
    statistics=("offset",),
    dictionary_columns=("key",),
)
KEYS = [b"a", b"b", None]


def table(seed: int, rows: int, base: int = 0) -> pa.Table:
    """Keys repeat, so their column has a dictionary; a few values are null."""
    draw = np.random.default_rng(seed)
    values = [None if n % 7 == 3 else draw.bytes(int(draw.integers(0, 400))) for n in range(rows)]
    columns = [
        pa.array(draw.integers(0, 5, rows), pa.int32()),
        pa.array(np.arange(base, base + rows), pa.int64()),
        pa.array([KEYS[n] for n in draw.integers(0, len(KEYS), rows)], pa.binary()),
        pa.array(values, pa.binary()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def source(groups: list[pa.Table], key: str = "from") -> CopySource:
    """An object with one row group for each of `groups`."""
    return CopySource(key, FLAVOR, encode_row_groups(settings_for(FLAVOR, groups[0]), groups, b"{}"))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=4), min_size=1, max_size=6), st.randoms())
def test_a_copy_holds_the_row_groups_in_the_order_of_copying(sizes: list[list[int]], random: object) -> None:
    tables = [[table(31 * n + m, rows, 1_000 * m) for m, rows in enumerate(some)] for n, some in enumerate(sizes)]
    sources = [source(groups) for groups in tables]
    order = [(n, m) for n, groups in enumerate(tables) for m in range(len(groups))]
    random.shuffle(order)  # type: ignore[attr-defined]
    copier = RowGroupCopier(FLAVOR)
    for n, m in order:
        copier.add(sources[n], m)
    footer, records = decode_parquet("copy", FLAVOR, copier.finish(b'{"n":1}'))
    assert footer.header_json == b'{"n":1}'
    assert records.equals(pa.concat_tables([tables[n][m] for n, m in order]))
    bounds = [group.bounds[0] for group in footer.row_groups]
    assert bounds == [(tables[n][m]["offset"][0].as_py(), tables[n][m]["offset"][-1].as_py()) for n, m in order]


def test_other_readers_read_a_copy_of_many_row_groups(tmp_path: object) -> None:
    """Also by statistics: pyarrow prunes row groups by them, which it does only if the footer names column orders."""
    parts = [table(n, 50, 50 * n) for n in range(40)]
    copier = RowGroupCopier(FLAVOR)
    for part in parts:
        copier.add(source([part]), 0)
    body = copier.finish(b"{}")
    file = pq.ParquetFile(io.BytesIO(body))
    assert file.metadata.num_row_groups == 40
    assert file.read().equals(pa.concat_tables(parts))
    statistics = file.metadata.row_group(7).column(1).statistics
    assert (statistics.min, statistics.max) == (350, 399)
    assert [field.metadata[b"PARQUET:field_id"] for field in file.schema_arrow] == [b"1", b"2", b"4", b"5"]
    path = f"{tmp_path}/copy.parquet"
    with open(path, "wb") as out:
        out.write(body)
    query = f'select count(*), min("offset"), max("offset"), sum(octet_length(value)) from \'{path}\''
    whole = pa.concat_tables(parts)
    raw = sum(len(value) for value in whole["value"].to_pylist() if value is not None)
    assert duckdb.sql(query).fetchone() == (2_000, 0, 1_999, raw)


def test_a_copy_can_be_copied_again() -> None:
    first = RowGroupCopier(FLAVOR)
    parts = [table(1, 100), table(2, 100, 100)]
    for part in parts:
        first.add(source([part]), 0)
    again = RowGroupCopier(FLAVOR)
    copied = CopySource("first", FLAVOR, first.finish(b"{}"))
    for index in (1, 0):
        again.add(copied, index)
    assert decode_parquet("again", FLAVOR, again.finish(b"{}"))[1].equals(pa.concat_tables(parts[::-1]))


def test_a_damaged_row_group_is_not_copied() -> None:
    body = bytearray(encode_parquet(FLAVOR, table(1, 100), b"{}"))
    body[40] ^= 1
    with pytest.raises(Corrupt, match="row group 0 does not have its checksum"):
        CopySource("damaged", FLAVOR, body).check()


def test_a_source_of_another_format_is_refused() -> None:
    body = encode_parquet(replace(FLAVOR, form=Format("test", 2, 2)), table(1, 10), b"{}")
    with pytest.raises(NewerFormat, match=r"version 2 of the format .test., and this Tidelog reads up to 1"):
        CopySource("other", FLAVOR, body)
