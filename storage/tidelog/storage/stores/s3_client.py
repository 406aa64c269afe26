"""The S3 client of aioboto3 with the settings that the store needs: bucket style, signing, one try.

botocore's retries are off, and so is aiohttp's own second try (`s3_hooks`): one call of the store is one request.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import aioboto3
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession

from tidelog.storage.stores.s3_credentials import ProfileCredentials
from tidelog.storage.stores.s3_hooks import OneTrySession
from tidelog.storage.stores.s3_settings import S3Settings, is_amazon

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client


@dataclass(frozen=True)
class Connection:
    """A client, its HTTP session, and the credentials that it signs with."""

    client: S3Client
    http: OneTrySession
    credentials: ProfileCredentials


async def connect(settings: S3Settings, until_closed: AsyncExitStack) -> Connection:
    """Open a client; the stack closes it. Settings that are None come from the usual AWS settings."""
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
        http_session_cls=cast(type[AIOHTTPSession], make_http),  # aiobotocore only calls it
        connect_timeout=settings.connect_s_max,
        read_timeout=settings.request_s_max,
        max_pool_connections=settings.connections_max,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1, "mode": "standard"},
        s3={"payload_signing_enabled": False, "addressing_style": addressing_style},
    )
