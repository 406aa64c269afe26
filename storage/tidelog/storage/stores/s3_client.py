"""The S3 client of aioboto3 as the store wants it: which bucket style, which signing, no second try.

botocore's retries are off, and so is aiohttp's own second try of a request on a connection that broke: one call of the
store is one request (`stores.s3`).
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from botocore.awsrequest import AWSPreparedRequest

from tidelog.storage.stores.s3_credentials import ProfileCredentials
from tidelog.storage.stores.s3_limits import RequestLimits
from tidelog.storage.stores.s3_settings import S3Settings, is_amazon

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client


RESERVED_BYTES_MAX = 64 * 1024 * 1024
"""A larger body takes its memory as it comes, whatever length is declared."""


@dataclass(frozen=True)
class Answer:
    """A whole answer of the store; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class OneTrySession(AIOHTTPSession):
    """aiohttp sends a PUT again by itself when a kept-alive connection breaks; here nothing is sent twice."""

    async def exchange(self, request: AWSPreparedRequest, limits: RequestLimits) -> Answer:
        """Send a signed request and read its answer. Raises `BotoCoreError` if none comes, `aiohttp.ClientError` if it
        breaks off, `TimeoutError` if its head or its body takes longer than `limits` give it."""
        request.stream_output = True  # the body is read here
        async with asyncio.timeout(limits.seconds(0)):
            response: Any = await self.send(cast(Any, request))  # the stubs take it for another library's
        declared_bytes = int(response.headers.get("content-length", 0))
        async with response.raw as answer, asyncio.timeout(limits.seconds(declared_bytes)):
            data = await _body(answer.content, declared_bytes)
        return Answer(response.status_code, response.headers, data)

    def close_idle(self) -> None:
        """Close the connections that no request uses: after one hung, the others that are as old may hang, too."""
        sessions: Any = self._sessions  # type: ignore[attr-defined]  # the stubs leave it out
        for connector in (session.connector for session in sessions.values()):
            for kept in connector._conns.values():
                for protocol, _ in kept:
                    protocol.close()
            connector._conns.clear()

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)  # type: ignore[misc]  # the stubs leave it out
        session._retry_connection = False
        return session


async def _body(stream: aiohttp.StreamReader, declared_bytes: int) -> bytes:
    """Each piece goes to its place at once. aiohttp's own way keeps all pieces and joins them at the end: at 8 MiB that
    takes half as much CPU again, for memory that was not in use before."""
    body = io.BytesIO()
    if 0 < declared_bytes <= RESERVED_BYTES_MAX:
        body.seek(declared_bytes - 1)
        body.write(b"\0")  # takes all of the memory at once
        body.seek(0)
    while piece := await stream.readany():
        body.write(piece)
    body.truncate()
    return body.getvalue()


@dataclass(frozen=True)
class Connection:
    """A client, the HTTP session that it sends by, and the credentials that it signs by."""

    client: S3Client
    http: OneTrySession
    credentials: ProfileCredentials


async def connect(settings: S3Settings, until_closed: AsyncExitStack) -> Connection:
    """What is not in `settings` comes from the usual AWS settings. It is closed with the stack."""
    session = aioboto3.Session(
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        region_name=settings.region,
    )
    region = session.region_name or os.environ.get("AWS_REGION") or "us-east-1"
    style = {True: "path", False: "virtual", None: None}[settings.path_style]
    if style is None:
        async with session.client("s3", region_name=region, endpoint_url=settings.endpoint_url) as probe:
            profile_style = (getattr(probe.meta.config, "s3", None) or {}).get("addressing_style")
            style = profile_style or ("auto" if is_amazon(probe.meta.endpoint_url) else "path")
    made: list[OneTrySession] = []

    def make_http(**arguments: Any) -> OneTrySession:
        made.append(OneTrySession(**arguments))
        return made[-1]

    config = _config(settings, style, make_http)
    client = await until_closed.enter_async_context(
        session.client("s3", region_name=region, endpoint_url=settings.endpoint_url, config=config)
    )
    return Connection(client, made[-1], ProfileCredentials(session))


def _config(settings: S3Settings, addressing_style: str, make_http: Callable[..., AIOHTTPSession]) -> AioConfig:
    return AioConfig(
        http_session_cls=cast(type[AIOHTTPSession], make_http),  # whatever makes one
        connect_timeout=settings.connect_s_max,
        read_timeout=settings.request_s_max,
        max_pool_connections=settings.connections_max,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1, "mode": "standard"},
        s3={"payload_signing_enabled": False, "addressing_style": addressing_style},
    )
