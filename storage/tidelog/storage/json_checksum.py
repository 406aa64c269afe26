"""A JSON object with the checksum of its own text as its last field, as journal entries, floors and the mark of a
copy are stored.

    {"format_version":1,"number":7,"epoch":2,"crc32":"0a1b2c3d"}

The CRC32 is of everything before `,"crc32"`. A flipped bit often leaves JSON that can be read and says something else;
this tells. Unlike an envelope (`manifests.json_envelope`) it changes no format: a reader of before passes over a field
it does not know, and what was written before, without one, is read as ever. So brokers of both kinds run side by side.
"""

from __future__ import annotations

import re
import zlib

from tidelog.storage.errors import Corrupt

_CHECKSUM = re.compile(rb',"crc32":"([^"]*)"\}\Z')


def with_checksum(text: bytes) -> bytes:
    """`text`, a JSON object that has a field and no space around it, with its checksum."""
    covered = text.removesuffix(b"}")
    assert 1 < len(covered) == len(text) - 1, text
    return b'%b,"crc32":"%08x"}' % (covered, zlib.crc32(covered))


def check_checksum(key: str, data: bytes) -> None:
    """Raises `Corrupt` naming `key` if `data` has a checksum, and another than its own."""
    found = _CHECKSUM.search(data, max(0, len(data) - 64))
    if found and found[1] != b"%08x" % zlib.crc32(data[: found.start()]):
        raise Corrupt(key, "does not have its checksum")
