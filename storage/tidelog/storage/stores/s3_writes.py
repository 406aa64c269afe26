"""PUTs of S3 objects, with the body in the caller's memory and a CRC32 that S3 checks.

botocore takes no memoryview as a body, and aiohttp hands a large `bytes` to the socket in one call, which copies what
the socket does not take. So botocore makes and signs a request without a body, and the body joins it just before it is
sent, as an aiohttp payload that writes slice after slice. Content-Length is not part of the signature.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from botocore.awsrequest import AWSPreparedRequest

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

SLICE_BYTES = 256 * 1_024

CRC_INLINE_BYTES_MAX = 256 * 1_024
"""The CRC32 of a longer body is computed in another thread: 8 MiB would hold this loop for several ms."""

_sending: ContextVar[memoryview] = ContextVar("_sending")


class S3Writes:
    """PUTs to `bucket`. No other code may PUT by `client`. Raises what the client raises."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        client.meta.events.register("before-send.s3.PutObject", _attach_body)

    async def put(self, name: str, body: memoryview, condition: Mapping[str, Any]) -> str:
        """Write the object `name` under `condition`: ``IfMatch``, ``IfNoneMatch`` or none. Each item of `body` is one
        byte. Returns the ETag."""
        _sending.set(body)
        checksum = await _crc32(body)
        answer = await self._client.put_object(
            Bucket=self._bucket, Key=name, ChecksumAlgorithm="CRC32", ChecksumCRC32=checksum, **condition
        )
        return answer["ETag"]


class ViewPayload(aiohttp.Payload):
    """The bytes of `view` in slices of `SLICE_BYTES`."""

    def __init__(self, view: memoryview) -> None:
        super().__init__(view)
        self._view = view

    @property
    def size(self) -> int:
        return self._view.nbytes

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._view).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for start in range(0, self._view.nbytes, SLICE_BYTES):
            await writer.write(self._view[start : start + SLICE_BYTES])


def _attach_body(request: AWSPreparedRequest, **_: Any) -> None:
    view = _sending.get()
    request.body = cast(Any, ViewPayload(view))  # the stubs do not know that aiohttp sends the body
    request.headers["Content-Length"] = str(view.nbytes)


async def _crc32(body: memoryview) -> str:
    """In base64, as S3 takes it."""
    is_long = body.nbytes > CRC_INLINE_BYTES_MAX
    checksum = await asyncio.to_thread(zlib.crc32, body) if is_long else zlib.crc32(body)
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()
