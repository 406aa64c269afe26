"""Every writer of segments states the pages of its row groups, with their checksums, and other readers do not mind."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from tests.storage.record_tables import record_table
from tests.storage.topic_segments import PLACE, made_segment, span_in

from tidelog.storage.bucket.segment_reading import check_segment
from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.parquet.page_map import decoded_map, is_sound, walked
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import decode_footer
from tidelog.storage.parquet.row_decoding import decode_parquet
from tidelog.storage.parquet.row_group_copy import CopySource, RowGroupCopier
from tidelog.storage.parquet.thrift_compact import StructReader
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.segments.topic_segment import FINAL_SEGMENT_FLAVOR, SEGMENT_FLAVOR, encode_header, sha256_of
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.segment_writer import RunFacts, SegmentWriter
from tidelog.storage.wal.wal_codec import WAL_FLAVOR

ROWS = 12_000
_PAYLOADS = [(b"key %d" % (n % 700), random.Random(n).randbytes(40) * 8, None) for n in range(ROWS)]
TABLE = record_table(range(ROWS), _PAYLOADS)
MADE = made_segment({0: TABLE}, ends=[100, ROWS // 2, ROWS])
"""A segment as earlier programs wrote it: without maps. Its first row group is small."""
STORED = decode_parquet("k", SEGMENT_FLAVOR, MADE.body)[1]


def copied(source: CopySource) -> CopySource:
    copier = RowGroupCopier(SEGMENT_FLAVOR)
    for group in source.footer.row_groups:
        copier.add(source, group.index)
    return CopySource("copy", SEGMENT_FLAVOR, copier.finish(encode_header(PLACE, MADE.segment.spans)))


def check_maps(source: CopySource) -> None:
    """Every large row group has a sound map."""
    footer = source.footer
    assert footer.page_maps
    for group in footer.row_groups:
        pages = footer.pages_of(source.key, group)
        assert (pages is None) == (group.rows < 1_000)
        if pages is not None:
            assert is_sound(pages, footer.metadata, group.index, source.bytes_of(group.index), group.start)
            assert len(pages[4]) >= 2


@pytest.mark.parametrize("flavor", [SEGMENT_FLAVOR, WAL_FLAVOR], ids=["a segment without maps", "an entry"])
def test_a_copy_gets_maps_and_a_copy_of_it_keeps_them(flavor: ParquetFlavor) -> None:
    body = encode_parquet(flavor, STORED, b"{}", [100, ROWS // 2, ROWS])
    once = copied(CopySource("from", flavor, body))
    check_maps(once)
    twice = copied(once)
    assert list(twice.footer.page_maps) == list(once.footer.page_maps)
    assert decode_parquet("twice", SEGMENT_FLAVOR, twice.body)[1].equals(STORED)


@pytest.fixture(scope="module")
def final(tmp_path_factory: pytest.TempPathFactory) -> EncodedSegment:
    """A segment as merges write it for the years, with indexes of pages and a filter of keys."""
    flavor = replace(FINAL_SEGMENT_FLAVOR, bloom_column="key")
    writer = SegmentWriter(PLACE, flavor, tmp_path_factory.mktemp("spill"))
    for first, end in ((0, 100), (100, 7_000), (7_000, ROWS)):
        writer.write(STORED.slice(first, end - first))
    made = writer.finish("0" * 32, RunFacts(0, 2, 0))
    writer.close()
    return made


async def test_a_final_segment_has_maps_and_is_verified(final: EncodedSegment) -> None:
    check_maps(CopySource(final.segment.key, SEGMENT_FLAVOR, final.body))
    store = MemoryObjectStore()
    await store.create(final.segment.key, final.body)
    await check_segment(store, final.segment)
    records = await SegmentReader(store).read(span_in(final.segment, 0), 8_765, records_max=1)
    assert records.equals(TABLE.slice(8_765, records.num_rows))


def test_its_indexes_moved_with_its_row_groups(final: EncodedSegment, tmp_path: Path) -> None:
    body = memoryview(final.body).cast("B")
    footer = decode_footer("final", SEGMENT_FLAVOR, body, len(body))
    reader = StructReader(body[footer.start : -8])
    indexes: list[list[int]] = []
    for number, kind in reader.fields():
        if number != 4:
            reader.skip(kind)
            continue
        for _ in reader.items():
            indexes.append([each.value for each in reader.numbers({1: {4: None}})])
    for group, positions in zip(footer.row_groups, indexes, strict=True):
        data = body[group.start : group.end]
        for at, pages in zip(positions, walked(footer.metadata, group.index, data, group.start), strict=True):
            places = [each.value for each in StructReader(body, at).numbers({1: {1: None, 2: None}})]
            first, last = places[0], places[-2] + places[-1]
            assert (first, last) == (group.start + pages[0].start, group.start + pages[-1].end)
    path = tmp_path / "final.parquet"
    path.write_bytes(body)
    query = "select count(*), min(\"offset\") from '{}' where key = 'key 17'::blob and \"offset\" > 6999"
    assert duckdb.sql(query.format(path)).fetchone() == (8, 7_017)
    described = pq.read_metadata(path).row_group(2)
    assert described.column(1).has_column_index
    assert all(described.column(leaf).has_offset_index for leaf in range(7))
    assert footer.rows_end <= described.column(3).bloom_filter_offset < footer.start


def test_damage_in_an_index_is_noticed(final: EncodedSegment) -> None:
    body = bytearray(final.body)
    body[decode_footer("final", SEGMENT_FLAVOR, body, len(body)).rows_end + 30] ^= 1
    with pytest.raises(Corrupt, match="indexes do not have their checksum"):
        decode_parquet("final", SEGMENT_FLAVOR, bytes(body))


def test_the_maps_take_a_thousandth_of_the_object() -> None:
    once = copied(CopySource("from", SEGMENT_FLAVOR, MADE.body))
    grown = len(once.body) - len(MADE.body)
    assert 0 < sum(map(len, once.footer.page_maps)) < len(once.body) / 1_000
    assert grown < len(once.body) / 1_000


def test_other_readers_read_an_object_with_maps() -> None:
    once = copied(CopySource("from", SEGMENT_FLAVOR, MADE.body))
    assert pq.ParquetFile(pa.BufferReader(once.body)).read().equals(STORED.cast(STORED_SCHEMA))


def _text() -> str:
    return copied(CopySource("from", SEGMENT_FLAVOR, MADE.body)).footer.page_maps[1]


def _numbers(change: str) -> str:
    data = b64decode(_text())
    rows = int.from_bytes(data[8:12], "little")
    changed = {
        "a page less": data[:-16],
        "a page more": data + data[-16:],
        "half a page": data[:-8],
        "another size": (1).to_bytes(4, "little") + data[4:],
        "another checksum": data[:-4] + bytes(4),
        "other rows": data[:8] + (rows + 1).to_bytes(4, "little") + data[12:],
    }[change]
    return b64encode(changed).decode()


@pytest.mark.parametrize(
    "change", ["a page less", "a page more", "half a page", "another size", "another checksum", "other rows"]
)
def test_a_map_that_does_not_fit_is_refused(change: str) -> None:
    footer = CopySource("from", SEGMENT_FLAVOR, MADE.body).footer
    crc32 = footer.row_groups[1].crc32
    assert decoded_map(_text(), footer.metadata, 1, crc32)
    with pytest.raises(ValueError, match="map of pages"):
        decoded_map(_numbers(change), footer.metadata, 1, crc32)
    with pytest.raises(Corrupt, match="cannot be read as Parquet"):
        replace(footer, page_maps=["", _numbers(change), ""]).pages_of("from", footer.row_groups[1])


class Liar(CopySource):
    """States checksums of pages that are not theirs."""

    def page_map(self, index: int, data: memoryview) -> str:
        text = b64decode(super().page_map(index, data))
        return b64encode(text[:12] + bytes(4) + text[16:]).decode() if text else ""


async def test_verify_reports_a_map_that_does_not_fit_its_pages() -> None:
    body = copied(Liar("from", SEGMENT_FLAVOR, MADE.body)).body
    store, key = MemoryObjectStore(), MADE.segment.key
    await store.create(key, body)
    with pytest.raises(Corrupt, match="its map of pages is not that of row group 1"):
        await check_segment(store, structs.replace(MADE.segment, size_bytes=len(body), sha256=sha256_of(body)))
