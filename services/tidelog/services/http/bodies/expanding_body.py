"""A compressed body, expanded piece by piece as its reader asks for it."""

from __future__ import annotations

from types import TracebackType
from typing import Literal, Self

import pyarrow as pa

from tidelog.services.http.answers.problems import Unreadable
from tidelog.storage.object_store import Body

_CODECS: dict[str, Literal["gzip", "zstd"]] = {"gzip": "gzip", "zstd": "zstd"}


class ExpandingBody:
    """`encoding`: gzip or zstd. One thread at a time reads; the others run on meanwhile."""

    def __init__(self, body: Body, encoding: str) -> None:
        self._stream = pa.CompressedInputStream(pa.BufferReader(body), _CODECS[encoding])
        self._encoding = encoding

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()

    def read(self, size_bytes: int) -> bytes:
        """The next `size_bytes`; fewer, or none, at the end. Raises `Unreadable`."""
        try:
            piece: bytes = self._stream.read(size_bytes)
        except OSError as error:
            raise Unreadable(f"the body is not whole {self._encoding}: {error}") from error
        return piece
