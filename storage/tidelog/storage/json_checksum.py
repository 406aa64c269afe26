"""A checksum as the last field of a JSON object: in journal entries, floors and the mark of a copied bucket.

    {"format_version":1,"number":7,"epoch":2,"crc32":"0a1b2c3d"}

The CRC32 covers everything before `,"crc32"`. A flipped bit often leaves valid JSON with another meaning; the checksum
detects it. The field changes no format, unlike an envelope (`manifests.json_envelope`): older readers ignore it, and
objects without it are still read, so brokers of both versions can run side by side.
"""

from __future__ import annotations

import re
import zlib

from tidelog.storage.errors import Corrupt

_CHECKSUM = re.compile(rb',"crc32":"([^"]*)"\}\Z')


def with_checksum(text: bytes) -> bytes:
    """`text` with its checksum. `text` is a JSON object with at least one field and without space around it."""
    covered = text.removesuffix(b"}")
    assert 1 < len(covered) == len(text) - 1, text
    return b'%b,"crc32":"%08x"}' % (covered, zlib.crc32(covered))


def check_checksum(key: str, data: bytes) -> None:
    """Raise `Corrupt`, naming `key`, if `data` has a checksum that does not match. Data without one passes."""
    found = _CHECKSUM.search(data, max(0, len(data) - 64))
    if found and found[1] != b"%08x" % zlib.crc32(data[: found.start()]):
        raise Corrupt(key, "does not have its checksum")
