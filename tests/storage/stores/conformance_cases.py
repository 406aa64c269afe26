"""The tables of the conformance suite: unusual valid keys, invalid keys, and ranges with their results."""

from __future__ import annotations

from tidelog.storage.object_store import KEY_BYTES_MAX, ByteRange

WEIRD_KEYS = (
    "a",
    "a b/c d",
    "wal/0000/00000000000000000000.parquet",
    "topics/t/id/partition=0/x.parquet",
    "q?x=1&y=2#z",
    "percent%41/100%",
    "plus+minus-_~.!*'()",
    "semi;colon:at@dollar$comma,",
    'quote"<angle>|pipe`^{}[]',
    "...",
    "dots/..a/b../.c",
    "x" * 255,
    "/".join(["y" * 200] * 5),
)

BAD_KEYS = (
    "",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/./b",
    "a\\b",
    "a\nb",
    "a\x00b",
    "ä",
    "x" * (KEY_BYTES_MAX + 1),
)

CONTENT = b"0123456789"
RANGES = (
    (ByteRange(0), b"0123456789"),
    (ByteRange(3), b"3456789"),
    (ByteRange(3, 4), b"3456"),
    (ByteRange(0, 10), b"0123456789"),
    (ByteRange(8, 10), b"89"),
    (ByteRange(9, 1), b"9"),
    (ByteRange(10), b""),
    (ByteRange(10, 5), b""),
    (ByteRange(99), b""),
    (ByteRange(3, 0), b""),
    (ByteRange(-1), b"9"),
    (ByteRange(-10), b"0123456789"),
    (ByteRange(-11), b"0123456789"),
)
