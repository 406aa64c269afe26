"""An HTTP body that stays in the caller's memory while aiohttp sends it.

aiohttp's own payload for bytes hands all of them to the socket in one call, which copies what the socket does not take
at once, and warns of it. This one hands over slice after slice and waits for the socket in between.
"""

from __future__ import annotations

import asyncio
import base64
import zlib

import aiohttp
from aiohttp.abc import AbstractStreamWriter

SLICE_BYTES = 256 * 1_024

CRC_INLINE_BYTES_MAX = 256 * 1_024
"""A longer body's CRC32 is taken in another thread: 8 MiB would hold this loop for several ms."""


class ViewPayload(aiohttp.Payload):
    """The bytes of `view`, one item a byte, in slices of `SLICE_BYTES`."""

    _autoclose = True  # there is nothing to close

    def __init__(self, view: memoryview) -> None:
        super().__init__(view)
        self._view = view
        self._size = view.nbytes

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._view).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for start in range(0, self._view.nbytes, SLICE_BYTES):
            await writer.write(self._view[start : start + SLICE_BYTES])


async def crc32_of(body: memoryview) -> str:
    """The checksum in the form that S3 takes it."""
    long = body.nbytes > CRC_INLINE_BYTES_MAX
    checksum = await asyncio.to_thread(zlib.crc32, body) if long else zlib.crc32(body)
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()
