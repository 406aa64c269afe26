"""Damages an object in every way of one kind and decodes it, in its own process, so that a crash or unbounded memory of
the decoder ends this process and not the test's.

    python -m tests.storage.damage OBJECT KEY KIND SEED COUNT      prints a line of JSON: how many ended how

Kinds: `flips` (every bit), `cuts` (every length), `bytes` (COUNT random changes of one to four bytes), `forged` (one
changed byte in the pages with matching checksums, which only the parser and the cross-checks can notice). Forged
footers are left out: pyarrow ends the process on some of them, which is why footers are checked before pyarrow sees
them.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
from tests.storage.record_tables import record_table
from tests.storage.topic_segments import PLACE, decode_topic_segment, made_segment, span_in

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.parquet_encoder import fill_in_checksums
from tidelog.storage.parquet.parquet_format import CHECKSUMS, decode_footer, footer_bytes
from tidelog.storage.segments.segment_slice import decode_span
from tidelog.storage.segments.span_groups import span_groups
from tidelog.storage.segments.stored_groups import StoredGroups, Wanted
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR
from tidelog.storage.wal.wal_codec import ParquetWalCodec

MEMORY_BYTES_MAX = 4 << 30
SEGMENT = made_segment({0: record_table([3, 4, 7, 9]), 5: record_table([2, 3])})
"""The segment that is damaged, of two partitions in one row group."""


def decoded(key: str, data: bytes) -> tuple[object, pa.Table]:
    """Return header and records of a WAL entry, or the slices of the spans and all rows of `SEGMENT`. Reading only the
    header, or a slice, must give the same or refuse."""
    if not key.startswith("wal/"):
        rows = decode_topic_segment(SEGMENT.segment, PLACE, data)
        return [_slice(data, span.partition) for span in SEGMENT.segment.spans], rows
    codec = ParquetWalCodec()
    entry = codec.decode(key, data)
    assert codec.decode_header(key, data) == entry.header
    return entry.header, entry.records


def _slice(data: bytes, partition: int) -> pa.Table:
    """One record and more of a partition, decoded from single pages."""
    key = SEGMENT.segment.key
    footer = decode_footer(key, SEGMENT_FLAVOR, data, len(data))
    (part,) = span_groups(footer, span_in(SEGMENT.segment, partition))
    stored = StoredGroups(key, footer, memoryview(data)[part.group.start : part.group.end], part.group.start)
    return decode_span(stored, [part], Wanted(partition, 0, 1, 1))


def damaged(kind: str, good: bytes, seed: int, count: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    if kind == "flips":
        for position in range(len(good)):
            for bit in range(8):
                yield _changed(good, position, good[position] ^ (1 << bit))
    elif kind == "cuts":
        yield from (good[:length] for length in range(len(good)))
        yield from (good[length:] for length in range(1, len(good)))
    elif kind == "bytes":
        for _ in range(count):
            bad = good
            for _ in range(chance.randint(1, 4)):
                bad = _changed(bad, chance.randrange(len(good)), chance.randrange(256))
            yield bad
    elif kind == "forged":
        for _ in range(count):
            position = chance.randrange(4, len(good) - footer_bytes("", good))
            yield refit(_changed(good, position, chance.randrange(256)), good)


def _changed(data: bytes, position: int, byte: int) -> bytes:
    return data[:position] + bytes([byte]) + data[position + 1 :]


def refit(bad: bytes, good: bytes) -> bytes:
    """Return `bad` with checksums that match it, with parts like those of `good` (one row group)."""
    if len(bad) != len(good) or CHECKSUMS.search(bad, len(bad) - footer_bytes("", bad)) is None:
        return bad
    body = bytearray(bad)
    fill_in_checksums(memoryview(body), [_rows_end(good)])
    return bytes(body)


@cache
def _rows_end(good: bytes) -> int:
    """The end of the row group of `good`, where its checksum matches."""
    start = len(good) - footer_bytes("", good)
    found = CHECKSUMS.search(good, start)
    assert found is not None
    return next(end for end in range(start, 4, -1) if b"%08x" % zlib.crc32(good[4:end]) == found.group(1)[8:16])


def outcome(key: str, bad: bytes, header: object, records: pa.Table) -> str:
    try:
        found_header, found = decoded(key, bad)
    except Corrupt as error:
        return "corrupt" if error.name == key else "corrupt without its name"
    return "same" if found_header == header and found.equals(records) else "other"


def main() -> None:
    path, key, kind, seed, count = sys.argv[1:]
    good = Path(path).read_bytes()
    header, records = decoded(key, good)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    ends = Counter(
        outcome(key, bad, header, records) for bad in damaged(kind, good, int(seed), int(count)) if bad != good
    )
    print(json.dumps(ends))


if __name__ == "__main__":
    main()
