"""Row groups that are cut out of stored objects make a Parquet file that any reader opens."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.record_tables import Payload, payload, record_table
from tests.storage.topic_segments import made_segment

from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import decode_footer
from tidelog.storage.parquet.row_group_extract import ExtractedGroups, extracted_file
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.segments.topic_segment import FINAL_SEGMENT_FLAVOR, SEGMENT_FLAVOR

ROWS, GROUP = 400, 100


def repeated(offset: int) -> Payload:
    """Rows for which a dictionary pays."""
    return (b"key %d" % (offset % 3), b"value %d " % (offset % 5) * 40, None)


def noise(offset: int) -> Payload:
    return (None, random.Random(offset).randbytes(300) if offset % 7 else None, [{"key": "k", "value": b"v"}])


KINDS = {"plain": payload, "repeated": repeated, "noise": noise}


def groups_of(kind: str, flavor: ParquetFlavor, first: int, end: int) -> tuple[ExtractedGroups, pa.Table]:
    """Row groups ``[first, end)`` of a segment, and their rows as pyarrow reads them from it."""
    table = record_table(range(ROWS), [KINDS[kind](offset) for offset in range(ROWS)])
    made = made_segment({3: table}, flavor=flavor, ends=range(GROUP, ROWS + 1, GROUP))
    body = memoryview(made.body).cast("B")
    footer = decode_footer(made.segment.key, SEGMENT_FLAVOR, body, len(body))
    groups = footer.row_groups[first:end]
    rows = pq.ParquetFile(pa.BufferReader(body)).read_row_groups(list(range(first, end)))
    return ExtractedGroups(footer, groups, body[groups[0].start : groups[-1].end]), rows


def file_of(parts: Sequence[ExtractedGroups]) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(b"".join(extracted_file(STORED_SCHEMA, parts))))


@pytest.mark.parametrize("flavor", [SEGMENT_FLAVOR, FINAL_SEGMENT_FLAVOR], ids=["young", "final"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_are_those_of_the_segment(kind: str, flavor: ParquetFlavor) -> None:
    part, rows = groups_of(kind, flavor, 1, 3)
    file = file_of([part])
    assert file.metadata.num_row_groups == 2
    assert file.metadata.num_rows == 2 * GROUP
    assert file.read().equals(rows)
    assert file.schema_arrow.equals(STORED_SCHEMA)


def test_row_groups_of_several_segments_share_a_file() -> None:
    parts = [groups_of(kind, SEGMENT_FLAVOR, first, 4) for first, kind in enumerate(KINDS)]
    file = file_of([part for part, _ in parts])
    assert file.read().equals(pa.concat_tables(rows for _, rows in parts))
    assert file.read_row_groups([4, 5, 6]).equals(parts[1][1])


def test_no_row_group_is_copied() -> None:
    part, _ = groups_of("noise", SEGMENT_FLAVOR, 0, 4)
    pieces = extracted_file(STORED_SCHEMA, [part])
    assert any(piece.obj is part.data.obj and piece.nbytes == part.data.nbytes for piece in pieces)
