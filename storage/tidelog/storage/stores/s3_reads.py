"""GETs of S3 objects: botocore makes the first one, and later ones are made after its pattern.

Between the call of botocore's `get_object` and the request lies a millisecond of rules and events. Their outcome is
the same for every object of a bucket: host, path, user agent, signer, region. So once the first GET is answered, its
request as botocore handed it to the signer becomes a pattern (`s3_hooks.GetPattern`). Later GETs put in the key and the
range, and use the same signer and HTTP session. That halves the CPU of a GET of 1 KiB (ADR 0003).

botocore makes every GET of a bucket that the pattern does not fit (S3 Express signs by sessions), and one GET again
after a redirect.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast

import aiohttp
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ClientError
from botocore.parsers import create_parser

from tidelog.storage.errors import Unavailable
from tidelog.storage.object_store import ByteRange, ObjectInfo, StoredObject
from tidelog.storage.stores.s3_client import Connection
from tidelog.storage.stores.s3_hooks import GetPattern, GetPatterns
from tidelog.storage.stores.s3_settings import RequestLimits

_ELSEWHERE = (301, 302, 307, 400)
"""Answers that may mean that the bucket lies in another region. botocore follows them."""

RESERVED_BYTES_MAX = 64 * 1024 * 1024
"""Memory for a larger body is taken as the body arrives, whatever length is declared."""


@dataclass(frozen=True)
class Answer:
    """A whole answer of the store; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class S3Reads:
    """GETs of one bucket. Raises what aiobotocore's client raises, `aiohttp.ClientError` if an answer breaks off, and
    `TimeoutError` if its head or its body takes longer than `limits` allow."""

    def __init__(self, connection: Connection, bucket: str, limits: RequestLimits) -> None:
        self._connection = connection
        self._bucket = bucket
        self._limits = limits
        self._patterns = GetPatterns(connection.client)
        self._proved: GetPattern | None = None

    async def get(self, name: str, range_header: str | None) -> Answer:
        """The object `name`, or the range of it that `range_header` asks for."""
        if self._proved is not None:
            try:
                return await self._get_by(self._proved, name, range_header)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] not in _ELSEWHERE:
                    raise
                self._proved = None
        answer = await self._get_by_botocore(name, range_header)
        self._proved = self._patterns.last
        return answer

    async def _get_by(self, pattern: GetPattern, name: str, range_header: str | None) -> Answer:
        answer = await self._exchange(await pattern.signed(name, range_header))
        if answer.status >= 301:
            received = {"status_code": answer.status, "headers": answer.headers, "body": answer.data}
            refusal = create_parser("rest-xml").parse(received, cast(Any, None))  # an error has no shape
            raise ClientError(refusal, "GetObject")
        return answer

    async def _exchange(self, request: AWSPreparedRequest) -> Answer:
        request.stream_output = True  # the body is read here
        async with asyncio.timeout(self._limits.seconds(0)):
            response: Any = await self._connection.http.send(cast(Any, request))  # the stubs name another class
        declared_bytes = int(response.headers.get("content-length", 0))
        async with response.raw as answer, asyncio.timeout(self._limits.seconds(declared_bytes)):
            data = await _body(answer.content, declared_bytes)
        return Answer(response.status_code, response.headers, data)

    async def _get_by_botocore(self, name: str, range_header: str | None) -> Answer:
        self._patterns.expect(name)
        request: dict[str, Any] = {} if range_header is None else {"Range": range_header}
        async with asyncio.timeout(self._limits.seconds(0)):
            answer = await self._connection.client.get_object(Bucket=self._bucket, Key=name, **request)
        async with answer["Body"] as stream, asyncio.timeout(self._limits.seconds(answer.get("ContentLength", 0))):
            data = await stream.read()
        metadata = answer["ResponseMetadata"]
        return Answer(metadata["HTTPStatusCode"], metadata["HTTPHeaders"], data)


async def _body(stream: aiohttp.StreamReader, declared_bytes: int) -> bytes:
    """Write each piece to its place at once. aiohttp's `read` keeps all pieces and joins them at the end, which takes
    half as much CPU again at 8 MiB, and the memory twice."""
    body = io.BytesIO()
    if 0 < declared_bytes <= RESERVED_BYTES_MAX:
        body.seek(declared_bytes - 1)
        body.write(b"\0")  # takes all of the memory at once
        body.seek(0)
    while piece := await stream.readany():
        body.write(piece)
    body.truncate()
    return body.getvalue()


def stored_of(key: str, byte_range: ByteRange | None, answer: Answer) -> StoredObject:
    """The object in `answer`. Raises `Unavailable` if the body is not whole or the headers are not S3's."""
    headers, data = answer.headers, answer.data
    if len(data) != int(headers.get("content-length", -1)):
        raise Unavailable(f"{key}: {len(data)} bytes came, {headers.get('content-length', 'no length')} declared")
    content_range = headers.get("content-range")
    size = int(content_range.rpartition("/")[2]) if content_range else len(data)
    try:
        modified_ms = int(parsedate_to_datetime(headers["last-modified"]).timestamp() * 1_000)
        info = ObjectInfo(key, size, headers["etag"], modified_ms)
    except (KeyError, ValueError) as error:
        raise Unavailable(f"{key}: the answer is not that of S3: {error!r}") from error
    if byte_range is not None and content_range is None:
        data = data[slice(*byte_range.within(size))]  # a store may answer a range with the whole
    return StoredObject(info, data)


def range_header(byte_range: ByteRange) -> str:
    """As HTTP writes it. HTTP cannot ask for no bytes."""
    if byte_range.start < 0:
        return f"bytes={byte_range.start}"
    last = "" if byte_range.length is None else byte_range.start + byte_range.length - 1
    return f"bytes={byte_range.start}-{last}"
