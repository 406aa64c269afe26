"""JSON with a format version and a checksum, as manifests and their history are stored; large ones are compressed.

    {"format_version":2,"crc32":"0a1b2c3d","content":{...}}

Above `PACKED_BYTES_MIN` the content follows its envelope, after a newline, as one zstd frame:

    {"format_version":2,"crc32":"0a1b2c3d","content_bytes":123456}
    <zstd frame>                                                      # tail -n +2 FILE | zstd -d | jq

The names of segments resemble each other, so a list of them shrinks to a sixth. In both forms the CRC32 covers the
content's JSON text, so it also detects damage to the frame that zstd misses.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.formats import Format

T = TypeVar("T")

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Ints = npt.NDArray[np.int64]
"""A column of numbers, stored as an array."""

PACKED_BYTES_MIN = 64 * 1024
"""Shorter content stays readable by eye, in an object of about the smallest size that a store bills."""

CONTENT_BYTES_MAX = 1024 * 1024 * 1024
"""Three million segments. It bounds the memory that a foreign object can make a reader take."""

_ZSTD_LEVEL = 1
"""It compresses a list of 100,000 segments to 6.4 MB; level 3 makes 7.5 MB of it, in four times the time."""


class _Envelope(msgspec.Struct, omit_defaults=True):
    """With either the content, or the size of what follows."""

    format_version: int
    crc32: str = ""
    content: msgspec.Raw = msgspec.Raw(b"null")
    content_bytes: int = 0


_envelope_decoder = msgspec.json.Decoder(_Envelope)


def seal(form: Format, content: bytes) -> bytes:
    """The stored form of `content`, a JSON text."""
    crc32 = f"{zlib.crc32(content):08x}"
    if len(content) < PACKED_BYTES_MIN:
        return msgspec.json.encode(_Envelope(form.newest, crc32, msgspec.Raw(content)))
    envelope = msgspec.json.encode(_Envelope(form.newest, crc32, content_bytes=len(content)))
    return b"\n".join((envelope, pa.Codec("zstd", _ZSTD_LEVEL).compress(content, asbytes=True)))


def unseal(key: str, data: bytes, form: Format) -> bytes:
    """The content of the object `key`. Raises `Corrupt` and `NewerFormat` naming it."""
    line, newline, frame = data.partition(b"\n")
    try:
        envelope = _envelope_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(key, f"has no envelope: {error}") from error
    content = _unpacked(key, envelope.content_bytes, frame) if newline else bytes(envelope.content)
    if envelope.crc32 != f"{zlib.crc32(content):08x}":
        raise Corrupt(key, "does not have its checksum")
    form.check(key, envelope.format_version)
    return content


class SealedJson(Generic[T]):
    """The objects of the format `form`: values of type `kind`. `not_one`: the error's text for another content."""

    def __init__(self, kind: type[T], form: Format, not_one: str) -> None:
        self._form = form
        self._not_one = not_one
        self._decoder = msgspec.json.Decoder(kind, dec_hook=_column)

    def encode(self, value: T) -> bytes:
        return seal(self._form, _encoder.encode(value))

    def decode(self, key: str, data: bytes) -> T:
        """Raises `Corrupt` and `NewerFormat` naming `key`."""
        try:
            return self._decoder.decode(unseal(key, data, self._form))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(key, f"{self._not_one}: {error}") from error


def _listed(column: object) -> object:
    assert isinstance(column, np.ndarray), type(column)
    return column.tolist()


def _column(_kind: type, numbers: object) -> Ints:
    return np.array(msgspec.convert(numbers, list[Number]), np.int64)


_encoder = msgspec.json.Encoder(enc_hook=_listed)


def _unpacked(key: str, content_bytes: int, frame: bytes) -> bytes:
    if not PACKED_BYTES_MIN <= content_bytes <= CONTENT_BYTES_MAX:
        raise Corrupt(key, f"claims to hold {content_bytes} bytes, a size that no writer packs")
    try:
        return pa.Codec("zstd").decompress(frame, content_bytes, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise Corrupt(key, f"is not the zstd frame that its envelope describes: {error}") from error
