"""S3 and other servers of its protocol, by aioboto3. `opening` imports these modules only for a store on S3.

One call, one request
---------------------
botocore's retries are off, and so is aiohttp's own second try of a request on a broken connection. If a `create` whose
answer was lost were sent again silently, the caller would get a 412 and believe that *another* writer won. The wrapper
above (`stores.retrying`) decides whether to try again.

How bytes are protected
-----------------------
A write carries a CRC32 of the body, which the store compares before it stores anything; a mismatch is a 400 and raises
`Unavailable`. So the signature does not cover the payload (``UNSIGNED-PAYLOAD``), which halves the CPU of an 8 MiB PUT.
Over plain http the CRC protects against damage, not against an attacker. A read compares its length with the declared
one: it is complete or an error.

Bodies are sent from the caller's memory without a copy (`s3_writes`), by an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
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
    checked_key,
    checked_limit,
    delete_batches,
    flat_view,
    is_key_prefix,
)
from tidelog.storage.stores.loop_thread import LoopThread
from tidelog.storage.stores.s3_answers import RANGE_NOT_SATISFIABLE, Refusal, error_of, refusal_of
from tidelog.storage.stores.s3_client import Connection, connect
from tidelog.storage.stores.s3_deletes import S3Deletes
from tidelog.storage.stores.s3_partials import S3PartialUploads
from tidelog.storage.stores.s3_reads import S3Reads, range_header, stored_of
from tidelog.storage.stores.s3_settings import RequestLimits, S3Settings
from tidelog.storage.stores.s3_writes import S3Writes

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

T = TypeVar("T")

LIST_BYTES = 4 << 20
"""A listing may take as long as an answer of this size, since the store may search for long before it answers."""

SINGLE_DELETES_MAX = 16

_NO_ACCESS = (NoCredentialsError, PartialCredentialsError, TokenRetrievalError, ProfileNotFound)
_WRONG_INPUT = (ParamValidationError, NoRegionError)


@dataclass(frozen=True)
class _Opened:
    connection: Connection
    reads: S3Reads
    writes: S3Writes
    deletes: S3Deletes

    @property
    def client(self) -> S3Client:
        return self.connection.client


class S3ObjectStore:
    """Implements `ObjectStore` on `bucket`, under `prefix`. A version is the object's ETag."""

    def __init__(self, bucket: str, prefix: str = "", settings: S3Settings | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{checked_key(prefix.strip('/'))}/" if prefix.strip("/") else ""
        self._settings = settings or S3Settings()
        self._limits = RequestLimits(self._settings.request_s, self._settings.request_s_max)
        self._thread = LoopThread(f"tidelog-s3-{bucket}")
        self._open = AsyncExitStack()
        self._opened: _Opened | None = None
        self._connecting = asyncio.Lock()
        self._deletes_many = True  # until the server says that it cannot

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def partial_uploads(self) -> S3PartialUploads:
        return S3PartialUploads(self._asked, self._bucket, self._prefix)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        what = f"get {self.url}/{key}"
        return await self._thread.run(self._answered(what, lambda opened: self._get(opened, key, byte_range), None))

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        if if_version is None:
            return await self._written("put", key, data)
        try:
            return await self._written("put", key, data, IfMatch=if_version)
        except NotFound:
            raise Conflict(f"{key} is not at version {if_version}: there is no such object") from None

    async def create(self, key: str, data: Body) -> str:
        return await self._written("create", key, data, IfNoneMatch="*")

    async def delete(self, key: str) -> None:
        name = self._name(key)
        what = f"delete {self.url}/{key}"
        await self._thread.run(self._answered(what, lambda opened: opened.deletes.delete(name), 0))

    async def delete_many(self, keys: Sequence[str]) -> None:
        """A server without DeleteObjects gets single deletes, `SINGLE_DELETES_MAX` at once."""
        for batch in delete_batches([self._name(key) for key in keys]):
            if self._deletes_many:
                self._deletes_many = await self._delete_batch(batch)
            if not self._deletes_many:
                await self._delete_singly(batch)

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        checked_limit(limit)
        if not is_key_prefix(prefix):  # MinIO answers such a prefix with an error
            return ()
        page = partial(self._page, prefix=prefix, start_after=start_after, limit=limit)
        return await self._asked("list", prefix, page, LIST_BYTES)

    async def head(self, key: str) -> ObjectInfo:
        return await self._asked("head", key, lambda client: self._info(client, key))

    async def aclose(self) -> None:
        """Waits for the requests under way, then closes the connections."""
        await self._thread.aclose(self._open.aclose())

    def _name(self, key: str) -> str:
        return self._prefix + checked_key(key)

    async def _asked(self, verb: str, key: str, ask: Callable[[S3Client], Awaitable[T]], body_bytes: int = 0) -> T:
        what = f"{verb} {self.url}/{key}"
        return await self._thread.run(self._answered(what, lambda opened: ask(opened.client), body_bytes))

    async def _answered(self, what: str, ask: Callable[[_Opened], Awaitable[T]], body_bytes: int | None) -> T:
        """Runs in the store's thread: one request, whose failure becomes an error of Tidelog. If `body_bytes` is None,
        the size of the answer is unknown, and `ask` applies the time limits itself."""
        try:
            async with asyncio.timeout(self._settings.request_s_max):
                opened = await self._connected()
            return await self._in_time(what, ask(opened), opened, body_bytes)
        except ClientError as error:
            refused = error_of(refusal_of(error.response), what)
            if isinstance(refused, Denied) and self._opened:
                await self._opened.connection.credentials.reload()
            raise refused from error
        except RecursionError as error:  # botocore asks for the bucket's region, and that request is redirected too
            raise error_of(Refusal(301, "PermanentRedirect", "the store redirects without end"), what) from error
        except (BotoCoreError, aiohttp.ClientError, OSError, ValueError) as error:
            raise _without_answer(error, what) from error

    async def _in_time(self, what: str, asking: Awaitable[T], opened: _Opened, body_bytes: int | None) -> T:
        """The answer to `asking`. If it takes too long, raises `Unavailable` and closes the idle connections."""
        clock, limit_s = asyncio.get_running_loop().time, self._limits.seconds(body_bytes or 0)
        began_s = clock()
        try:
            async with asyncio.timeout(self._limits.longest_s if body_bytes is None else limit_s):
                answer = await asking
        except TimeoutError as error:
            self._limits.timed_out(limit_s)
            opened.connection.http.close_idle()
            raise Unavailable(f"{what}: no answer within {round(limit_s, 1):g} s") from error
        except ClientError:
            self._limits.answered(clock() - began_s)
            raise
        self._limits.answered(clock() - began_s)
        return answer

    async def _delete_batch(self, names: Sequence[str]) -> bool:
        """One request. False: the server has no DeleteObjects."""
        what = f"delete {len(names)} objects of {self.url}, from {names[0]} on"
        return await self._thread.run(
            self._answered(what, lambda opened: opened.deletes.delete_many(names), LIST_BYTES)
        )

    async def _delete_singly(self, names: Sequence[str]) -> None:
        turns = asyncio.Semaphore(SINGLE_DELETES_MAX)

        async def delete(name: str) -> None:
            async with turns:
                await self.delete(name.removeprefix(self._prefix))

        ended = await asyncio.gather(*map(delete, names), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _written(self, verb: str, key: str, data: Body, **condition: str) -> str:
        name, body = self._name(key), flat_view(data)
        put = self._answered(
            f"{verb} {self.url}/{key}", lambda opened: opened.writes.put(name, body, condition), body.nbytes
        )
        return await self._thread.run(put)

    async def _get(self, opened: _Opened, key: str, byte_range: ByteRange | None) -> StoredObject:
        name = self._name(key)
        if byte_range is None:
            return stored_of(key, None, await opened.reads.get(name, None))
        if byte_range.length == 0 or byte_range.start < -(2**62):
            return StoredObject(await self._info(opened.client, key), b"")  # HTTP cannot ask for no bytes
        try:
            answer = await opened.reads.get(name, range_header(byte_range))
        except ClientError as error:
            if refusal_of(error.response).status != RANGE_NOT_SATISFIABLE:
                raise
            return await self._beyond_end(opened.client, key, byte_range)
        return stored_of(key, byte_range, answer)

    async def _beyond_end(self, client: S3Client, key: str, byte_range: ByteRange) -> StoredObject:
        """S3 refuses a range that starts at or beyond the end, without the object's info."""
        info = await self._info(client, key)
        start, stop = byte_range.within(info.size)
        if start < stop:
            raise Unavailable(f"{key} was replaced while it was read: read it again")
        return StoredObject(info, b"")

    async def _info(self, client: S3Client, key: str) -> ObjectInfo:
        answer = await client.head_object(Bucket=self._bucket, Key=self._name(key))
        return ObjectInfo(key, answer["ContentLength"], answer["ETag"], _ms(answer["LastModified"]))

    async def _page(self, client: S3Client, prefix: str, start_after: str, limit: int) -> Sequence[ObjectInfo]:
        """S3 may give fewer objects than asked for although more follow, and may list names that are not valid keys."""
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
        except Invalid:  # for example the "folders" that consoles create
            return None

    async def _connected(self) -> _Opened:
        async with self._connecting:
            if self._opened is None:
                connection = await connect(self._settings, self._open)
                reads = S3Reads(connection, self._bucket, self._limits)
                client = connection.client
                self._opened = _Opened(
                    connection, reads, S3Writes(client, self._bucket), S3Deletes(client, self._bucket)
                )
            return self._opened


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)


def _without_answer(error: Exception, what: str) -> TidelogError:
    """The error for an exchange without an answer of the store."""
    if isinstance(error, _NO_ACCESS):
        return Denied(f"{what}: {error}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
    if isinstance(error, (*_WRONG_INPUT, ValueError)) and not isinstance(error, UnicodeError):
        return Invalid(f"{what}: {error}")
    return Unavailable(f"{what}: the exchange broke off: {error}")
