"""The four codecs in the forms that clients write, and bombs."""

from __future__ import annotations

import gzip
import struct
import sys
import time
from pathlib import Path

import cramjam
import pyarrow as pa
import pytest
from crc32c import crc32c
from tests.attempts import attempts, quicker_than
from tests.record_batches import reference
from tests.record_batches.batches import BYTES_MAX, NOW_MS, Made, batch_of, decoded, records_of
from tests.record_batches.reference import Record

from tidelog.record_batches.batch_header import Codec
from tidelog.record_batches.compression import compressed, decompressed
from tidelog.record_batches.errors import CorruptBatch, TooLargeBatch

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b"line %d of a text that compresses\n" % at for at in range(9_000))
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LZ4_MAGIC = 0x184D2204


def plain(codec: Codec, data: bytes, bytes_max: int = BYTES_MAX) -> bytes:
    return decompressed(codec, pa.py_buffer(data), bytes_max).to_pybytes()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "byte", "text"])
def test_there_and_back(codec: Codec, data: bytes) -> None:
    assert plain(codec, compressed(codec, pa.py_buffer(data)).to_pybytes()) == data


@pytest.mark.parametrize("codec", COMPRESSING)
def test_another_library_reads_it(codec: Codec) -> None:
    data = compressed(codec, pa.py_buffer(TEXT)).to_pybytes()
    if codec is Codec.SNAPPY:
        assert data.startswith(XERIAL)
        found, at = b"", len(XERIAL)
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            found += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
    else:
        found = bytes(getattr(cramjam, codec.name.lower()).decompress(data))
    assert found == TEXT


def snappy_frame(size: int) -> bytes:
    parts = [bytes(cramjam.snappy.compress_raw(TEXT[at : at + size])) for at in range(0, len(TEXT), size)]
    return XERIAL + b"".join(struct.pack(">i", len(part)) + part for part in parts)


def lz4_frame(flags: int) -> bytes:
    """Blocks that are stored, not compressed. `flags`: 0x40 is the version, 0x20 independent blocks."""
    blocks = [TEXT[at : at + 65_536] for at in range(0, len(TEXT), 65_536)]
    descriptor = bytes([flags, 0x40])
    stored = b"".join(struct.pack("<I", len(block) | 1 << 31) + block for block in blocks)
    head = struct.pack("<I", LZ4_MAGIC) + descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF])
    return head + stored + struct.pack("<I", 0)


def xxh32(data: bytes) -> int:
    """Of fewer than four bytes, with the seed 0. Source: the specification of xxHash."""
    mask, found = (1 << 32) - 1, 374_761_393 + len(data)
    for byte in data:
        found = (found + byte * 374_761_393) & mask
        found = ((found << 11 | found >> 21) * 2_654_435_761) & mask
    found = (found ^ found >> 15) * 2_246_822_519 & mask
    found = (found ^ found >> 13) * 3_266_489_917 & mask
    return found ^ found >> 16


FORMS = {
    "gzip, fast": (Codec.GZIP, gzip.compress(TEXT, 1)),
    "gzip, two members": (Codec.GZIP, gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
    "snappy, raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "snappy, blocks of 32 KiB": (Codec.SNAPPY, snappy_frame(32 << 10)),
    "snappy, one large block": (Codec.SNAPPY, snappy_frame(1 << 20)),
    "lz4, linked blocks": (Codec.LZ4, lz4_frame(0x40)),
    "lz4, independent blocks": (Codec.LZ4, lz4_frame(0x60)),
    "lz4, another library": (Codec.LZ4, bytes(cramjam.lz4.compress(TEXT))),
    "zstd, another library": (Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT))),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_clients(form: str) -> None:
    codec, data = FORMS[form]
    assert plain(codec, data) == TEXT


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_bounded_to_the_byte(form: str) -> None:
    codec, data = FORMS[form]
    assert plain(codec, data, len(TEXT)) == TEXT
    with pytest.raises(TooLargeBatch, match=f"and {len(TEXT) - 1} are allowed"):
        plain(codec, data, len(TEXT) - 1)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_cut_off_is_refused(form: str) -> None:
    codec, data = FORMS[form]
    for size in (1, 7, len(data) // 2, len(data) - 1):
        try:
            found = plain(codec, data[:size])
        except CorruptBatch:
            continue
        assert found != TEXT  # two members, cut between them: the records are too few then


@pytest.mark.parametrize("codec", COMPRESSING)
def test_garbage_is_refused(codec: Codec) -> None:
    for data in (b"\xff" * 40, b"\x00" * 40, b""):
        try:
            assert not plain(codec, data)  # an empty block is none
        except CorruptBatch:
            continue


@pytest.mark.parametrize(
    "blocks", [b"\x00\x00", struct.pack(">i", -1), struct.pack(">i", 9) + b"123", struct.pack(">i", 0)]
)
def test_a_snappy_frame_with_wrong_blocks_is_refused(blocks: bytes) -> None:
    with pytest.raises(CorruptBatch):
        plain(Codec.SNAPPY, XERIAL + blocks)


def test_a_snappy_block_that_lies_about_its_size_allocates_nothing() -> None:
    with pytest.raises(TooLargeBatch):
        plain(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 40)
    with pytest.raises(CorruptBatch):
        plain(Codec.SNAPPY, b"\xff\xff\xff\xff\xff\x0f")


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory can be reset on Linux only")
@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_costs_the_bound_and_not_what_it_holds(codec: Codec) -> None:
    bomb = wrapped(codec, bomb_of(codec, mib=400))
    before = reset_peak_kib()
    for attempt in attempts():
        with attempt, quicker_than(0.5, "CPU time of a bomb", time.process_time), pytest.raises(TooLargeBatch):
            decoded(bomb)
    assert peak_kib() - before < 16 << 10


def bomb_of(codec: Codec, mib: int) -> bytes:
    """Every codec may have several frames or blocks, so a bomb can be made without the memory that it would take."""
    part = compressed(codec, pa.py_buffer(bytes(1 << 20))).to_pybytes()
    return part + part[len(XERIAL) if codec is Codec.SNAPPY else 0 :] * (mib - 1)


def reset_peak_kib() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return peak_kib()


def peak_kib() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def wrapped(codec: Codec, data: bytes) -> bytes:
    """A batch whose records are `data`, with a checksum by the fast library: the reference's is slow."""
    covered = struct.pack(">hiqqqhii", codec, 0, NOW_MS, NOW_MS, -1, -1, -1, 1) + data
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered


def test_a_record_that_says_2_gib_is_refused_before_anything_is_allocated() -> None:
    data = reference.varint((1 << 31) - 1) + b"\0\0\0" + reference.varint((1 << 31) - 1)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptBatch, match="cut off"):
        decoded(reference.batch_of(data + b"\0" * 7, 1, base_timestamp=0))
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize("codec", Codec)
def test_decoded_columns_do_not_keep_the_request_alive(codec: Codec) -> None:
    records = [Record(row, NOW_MS, None, b"v" * 100, []) for row in range(500)]
    before = pa.total_allocated_bytes()
    found = decoded(batch_of(records, Made(codec)))
    assert pa.total_allocated_bytes() - before < 100 * 500 + 4096  # values alone are in Arrow's pool
    assert records_of(found) == records
