"""S3, and what speaks its protocol, by aioboto3. The only module that imports it; `opening` does so late.

One call, one request
---------------------
botocore's retries are off, and so is aiohttp's own second try of a PUT on a connection that broke. A `create` whose
answer was lost and that was silently sent again would come back as 412: the caller would be told that *another* won.
Which error a broken exchange is, and whether to try again, is decided above (`stores.retrying`), in sight.

What guards the bytes
---------------------
A write carries a CRC32 of the body, which the store compares before it stores anything (a mismatch is a 400, told as
`Unavailable`). The payload is therefore not hashed into the signature (``UNSIGNED-PAYLOAD``): that halves the CPU of an
8 MiB PUT. Over plain http the CRC guards against damage, not against malice, as TLS would. A read is complete or an
error: its length is compared with what the answer declared.

Bodies are sent from the caller's memory, slice by slice, without a copy, from an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)

from tidelog.storage.errors import Conflict, Denied, Invalid, NotFound, TidelogError, Unavailable
from tidelog.storage.object_store import (
    LIST_PAGE_MAX,
    Body,
    ByteRange,
    ObjectInfo,
    StoredObject,
    begins_a_key,
    checked_key,
    checked_limit,
    flat_view,
)
from tidelog.storage.stores.loop_thread import LoopThread
from tidelog.storage.stores.s3_answers import RANGE_NOT_SATISFIABLE, Refusal, error_of, refusal_of
from tidelog.storage.stores.s3_partials import S3PartialUploads
from tidelog.storage.stores.s3_settings import S3Settings, is_amazon
from tidelog.storage.stores.view_payload import ViewPayload, crc32_of

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client
    from types_aiobotocore_s3.type_defs import PutObjectRequestTypeDef

T = TypeVar("T")

_NO_ACCESS = (NoCredentialsError, PartialCredentialsError, TokenRetrievalError, ProfileNotFound)
_WRONG_INPUT = (ParamValidationError, NoRegionError)
_sending: ContextVar[memoryview] = ContextVar("_sending")


class S3ObjectStore:
    """Implements `ObjectStore` on `bucket`, under `prefix`. A version is the object's ETag."""

    def __init__(self, bucket: str, prefix: str = "", settings: S3Settings | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{checked_key(prefix.strip('/'))}/" if prefix.strip("/") else ""
        self._settings = settings or S3Settings()
        self._thread = LoopThread(f"tidelog-s3-{bucket}")
        self._open = AsyncExitStack()
        self._client: S3Client | None = None
        self._connecting = asyncio.Lock()

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def partial_uploads(self) -> S3PartialUploads:
        return S3PartialUploads(self._asked, self._bucket, self._prefix)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        return await self._asked("get", key, lambda client: self._get(client, key, byte_range))

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        request = self._write_request(key)
        if if_version is None:
            return await self._written("put", key, data, request)
        request["IfMatch"] = if_version
        try:
            return await self._written("put", key, data, request)
        except NotFound:
            raise Conflict(f"{key} is not at version {if_version}: there is no such object") from None

    async def create(self, key: str, data: Body) -> str:
        request = self._write_request(key)
        request["IfNoneMatch"] = "*"
        return await self._written("create", key, data, request)

    async def delete(self, key: str) -> None:
        name = self._name(key)

        async def delete(client: S3Client) -> None:
            await client.delete_object(Bucket=self._bucket, Key=name)

        await self._asked("delete", key, delete)

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        checked_limit(limit)
        if not begins_a_key(prefix):  # MinIO answers such a prefix with an error
            return ()
        return await self._asked("list", prefix, lambda client: self._page(client, prefix, start_after, limit))

    async def head(self, key: str) -> ObjectInfo:
        return await self._asked("head", key, lambda client: self._info(client, key))

    async def aclose(self) -> None:
        """Waits for the requests under way, then closes the connections."""
        await self._thread.aclose(self._open.aclose())

    def _name(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _write_request(self, key: str) -> PutObjectRequestTypeDef:
        return {"Bucket": self._bucket, "Key": self._name(key)}

    async def _asked(self, verb: str, key: str, ask: Callable[[S3Client], Awaitable[T]]) -> T:
        return await self._thread.run(self._answered(f"{verb} {self.url}/{key}", ask))

    async def _answered(self, what: str, ask: Callable[[S3Client], Awaitable[T]]) -> T:
        """In the store's thread: one request, and any failure of it as an error of Tidelog's."""
        try:
            async with asyncio.timeout(self._settings.request_s_max):
                return await ask(await self._connected())
        except ClientError as error:
            raise error_of(refusal_of(error.response), what) from error
        except RecursionError as error:  # botocore asks where the bucket lies, and that request is redirected too
            raise error_of(Refusal(301, "PermanentRedirect", "the store redirects without end"), what) from error
        except (BotoCoreError, aiohttp.ClientError, OSError, ValueError) as error:
            raise _without_answer(error, what, self._settings) from error

    async def _written(self, verb: str, key: str, data: Body, request: PutObjectRequestTypeDef) -> str:
        async def write(client: S3Client) -> str:
            body = flat_view(data)
            _sending.set(body)
            request["ChecksumAlgorithm"] = "CRC32"
            request["ChecksumCRC32"] = await crc32_of(body)
            return (await client.put_object(**request))["ETag"]

        return await self._asked(verb, key, write)

    async def _get(self, client: S3Client, key: str, byte_range: ByteRange | None) -> StoredObject:
        if byte_range is None:
            answer = await client.get_object(Bucket=self._bucket, Key=self._name(key))
        elif byte_range.length == 0 or byte_range.start < -(2**62):
            return StoredObject(await self._info(client, key), b"")  # no header can ask for no bytes
        else:
            try:
                header = _range_header(byte_range)
                answer = await client.get_object(Bucket=self._bucket, Key=self._name(key), Range=header)
            except ClientError as error:
                if refusal_of(error.response).status != RANGE_NOT_SATISFIABLE:
                    raise
                return await self._beyond_end(client, key, byte_range)
        async with answer["Body"] as stream:
            data = await stream.read()
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        if len(data) != int(headers.get("content-length", -1)):
            raise Unavailable(f"{key}: {len(data)} bytes came, {headers.get('content-length', 'no length')} declared")
        told_range = headers.get("content-range")
        size = int(told_range.rpartition("/")[2]) if told_range else len(data)
        info = ObjectInfo(key, size, answer["ETag"], _ms(answer["LastModified"]))
        if byte_range is not None and told_range is None:
            data = data[slice(*byte_range.within(size))]  # a store may answer a range with the whole
        return StoredObject(info, data)

    async def _beyond_end(self, client: S3Client, key: str, byte_range: ByteRange) -> StoredObject:
        """S3 refuses a range that starts at or beyond the end, and does not tell the object's info with that."""
        info = await self._info(client, key)
        start, stop = byte_range.within(info.size)
        if start < stop:
            raise Unavailable(f"{key} was replaced while it was read: read it again")
        return StoredObject(info, b"")

    async def _info(self, client: S3Client, key: str) -> ObjectInfo:
        answer = await client.head_object(Bucket=self._bucket, Key=self._name(key))
        return ObjectInfo(key, answer["ContentLength"], answer["ETag"], _ms(answer["LastModified"]))

    async def _page(self, client: S3Client, prefix: str, start_after: str, limit: int) -> Sequence[ObjectInfo]:
        """S3 may answer with fewer than asked for though more follow, and knows foreign names that are no keys."""
        page: Sequence[ObjectInfo] = ()
        after = self._prefix + start_after
        while len(page) < limit:
            answer = await client.list_objects_v2(
                Bucket=self._bucket, Prefix=self._prefix + prefix, StartAfter=after, MaxKeys=limit - len(page)
            )
            found = answer.get("Contents", ())
            page = (*page, *(info for each in found if (info := self._listed(each))))
            if not answer["IsTruncated"] or not found:
                break
            after = found[-1]["Key"]
        return page

    def _listed(self, each: Any) -> ObjectInfo | None:
        key = each["Key"].removeprefix(self._prefix)
        try:
            return ObjectInfo(checked_key(key), each["Size"], each["ETag"], _ms(each["LastModified"]))
        except Invalid:  # as the "folders" that consoles make
            return None

    async def _connected(self) -> S3Client:
        async with self._connecting:
            if self._client is None:
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> S3Client:
        session = aioboto3.Session(
            aws_access_key_id=self._settings.access_key_id,
            aws_secret_access_key=self._settings.secret_access_key,
            region_name=self._settings.region,
        )
        region = session.region_name or os.environ.get("AWS_REGION") or "us-east-1"
        style = {True: "path", False: "virtual", None: None}[self._settings.path_style]
        if style is None:
            async with session.client("s3", region_name=region, endpoint_url=self._settings.endpoint_url) as probe:
                profile_style = (getattr(probe.meta.config, "s3", None) or {}).get("addressing_style")
                style = profile_style or ("auto" if is_amazon(probe.meta.endpoint_url) else "path")
        client = await self._open.enter_async_context(
            session.client(
                "s3",
                region_name=region,
                endpoint_url=self._settings.endpoint_url,
                config=_config(self._settings, style),
            )
        )
        client.meta.events.register("before-call.s3.PutObject", _attach_body)
        return client


class _OneTrySession(AIOHTTPSession):
    """aiohttp sends a PUT again by itself when a kept-alive connection breaks; see "One call, one request"."""

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)  # type: ignore[misc]  # the stubs leave it out
        session._retry_connection = False
        return session


def _attach_body(params: dict[str, Any], **_: Any) -> None:
    """botocore takes no memoryview as a Body, so the body joins the request after its parameters were checked."""
    view = _sending.get()
    params["body"] = ViewPayload(view)
    params["headers"]["Content-Length"] = str(view.nbytes)


def _config(settings: S3Settings, addressing_style: str) -> AioConfig:
    return AioConfig(
        http_session_cls=_OneTrySession,
        connect_timeout=settings.connect_s_max,
        read_timeout=settings.request_s_max,
        max_pool_connections=settings.connections_max,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1, "mode": "standard"},
        s3={"payload_signing_enabled": False, "addressing_style": addressing_style},
    )


def _range_header(byte_range: ByteRange) -> str:
    if byte_range.start < 0:
        return f"bytes={byte_range.start}"
    last = "" if byte_range.length is None else byte_range.start + byte_range.length - 1
    return f"bytes={byte_range.start}-{last}"


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)


def _without_answer(error: Exception, what: str, settings: S3Settings) -> TidelogError:
    """The error for an exchange that gave no answer of the store's."""
    if isinstance(error, _NO_ACCESS):
        return Denied(f"{what}: {error}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
    if isinstance(error, (*_WRONG_INPUT, ValueError)) and not isinstance(error, UnicodeError):
        return Invalid(f"{what}: {error}")
    if isinstance(error, TimeoutError):
        return Unavailable(f"{what}: no answer within {settings.request_s_max:g} s")
    return Unavailable(f"{what}: the exchange broke off: {error}")
