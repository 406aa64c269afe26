"""A position in a whole topic, as text: ``0:41,1:7`` is the next offset of partitions 0 and 1.

Clients get a position as the id of events, in the header ``Tidelog-Position`` and in the position lines of JSON lines.
They send it back in ``Last-Event-ID``. If it names a partition twice, the later offset counts, so a client may append
the records that it has read since.

The position of more than `PLAIN_PARTITIONS_MAX` partitions is a token: ``~`` and base64url (RFC 4648, section 5) of a
zlib stream (RFC 1950). The stream holds LEB128 numbers: the number of partitions, the difference of each partition to
the previous one, and the difference of each offset to the previous one (zigzag-coded). A thousand partitions take 3 to
7 KB. The size grows with the number of partitions; `POSITION_PARTITIONS_MAX` bounds it.
"""

from __future__ import annotations

import binascii
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping

from tidelog.services.http.v1.parameters import OFFSET_MAX, PARTITION_MAX
from tidelog.wire import headers
from tidelog.wire.errors import Unreadable

PLAIN_PARTITIONS_MAX = 16
"""The position of more partitions is a token."""
POSITION_PARTITIONS_MAX = 1_000
"""Proxies refuse heads of 8 to 16 KB, and clients send positions in a head."""

_PLACE = re.compile(r"([0-9]{1,10}):([0-9]{1,18})")
_TOKEN = re.compile(r"~[A-Za-z0-9_-]{1,20000}={0,2}")
_TOKEN_BYTES_MAX = 20 * POSITION_PARTITIONS_MAX
"""The size of the numbers in a token: two per partition, of at most 10 bytes."""


def position_text(offsets: Mapping[int, int]) -> str:
    """The position with `offsets`, the next offset of each partition."""
    places = sorted(offsets.items())
    if len(places) <= PLAIN_PARTITIONS_MAX:
        return ",".join(f"{partition}:{offset}" for partition, offset in places)
    numbers = bytearray(_leb128(len(places)))
    for distance in _distances(partition for partition, _ in places):
        numbers += _leb128(distance)
    for distance in _distances(offset for _, offset in places):
        numbers += _leb128(2 * distance if distance >= 0 else -2 * distance - 1)
    return "~" + urlsafe_b64encode(zlib.compress(bytes(numbers))).decode().rstrip("=")


def parse_position_text(text: str, name: str) -> dict[int, int]:
    """The next offsets in `text`, by partition. Raises `Unreadable`, which names the header `name`."""
    offsets: dict[int, int] = {}
    for item in text.split(","):
        if place := _PLACE.fullmatch(item):
            offsets[int(place[1])] = int(place[2])
        elif _TOKEN.fullmatch(item) and (token := _parse_token(item[1:])) is not None:
            offsets |= token
        else:
            raise Unreadable(f"{name} must be a position from an answer, not {text[:80]!r}", field=name)
    return offsets


def position_headers(offsets: Mapping[int, int]) -> dict[str, str]:
    """The header with the start of a follow; none if the position would be too long."""
    return {headers.POSITION: position_text(offsets)} if len(offsets) <= POSITION_PARTITIONS_MAX else {}


def _parse_token(token: str) -> dict[int, int] | None:
    """None if `position_text` did not make the token."""
    try:
        stream = zlib.decompressobj()
        packed = urlsafe_b64decode(token.rstrip("=") + "=" * (-len(token.rstrip("=")) % 4))
        numbers = iter(stream.decompress(packed, _TOKEN_BYTES_MAX))
        count = _parse_leb128(numbers)
        if not stream.eof:
            return None
        partitions = _sums(_parse_leb128(numbers) for _ in range(count))
        distances = (_parse_leb128(numbers) for _ in range(count))
        offsets = _sums(zigzag // 2 if zigzag % 2 == 0 else -(zigzag + 1) // 2 for zigzag in distances)
    except (binascii.Error, zlib.error, ValueError):
        return None
    if any(not 0 <= number <= PARTITION_MAX for number in partitions):
        return None
    if any(not 0 <= number <= OFFSET_MAX for number in offsets):
        return None
    return dict(zip(partitions, offsets, strict=True))


def _distances(numbers: Iterable[int]) -> Iterator[int]:
    before = 0
    for number in numbers:
        yield number - before
        before = number


def _sums(distances: Iterable[int]) -> list[int]:
    found, before = [], 0
    for distance in distances:
        before += distance
        found.append(before)
    return found


def _leb128(number: int) -> bytes:
    """7 bits a byte, the low ones first; all but the last byte have the high bit."""
    coded = bytearray()
    while number > 0x7F:
        coded.append(number & 0x7F | 0x80)
        number >>= 7
    coded.append(number)
    return bytes(coded)


def _parse_leb128(numbers: Iterator[int]) -> int:
    """`ValueError` if the bytes end before the number does, or it has more than 64 bits."""
    number = 0
    for place in range(10):
        byte = next(numbers, None)
        if byte is None:
            break
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number
    raise ValueError("no number")
