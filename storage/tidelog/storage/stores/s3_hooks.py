"""The places where the S3 store reaches below the documented interface of its libraries. No other module does.

- `ClientSession._retry_connection` of aiohttp, through `AIOHTTPSession._get_session` of aiobotocore. Reason: aiohttp
  sends a request a second time when a kept connection breaks, but one call of the store is one request.
- `TCPConnector._conns` of aiohttp, through `AIOHTTPSession._sessions`. Reason: no documented call closes only the idle
  connections.
- The `before-sign` event of botocore, whose handler gets the signer. Reason: GETs after a pattern (`s3_reads`).

`tests/storage/stores/test_s3_hooks.py` fails if an upgrade changes one of them. ADR 0003 has the figures without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from aiobotocore.httpsession import AIOHTTPSession
from botocore.awsrequest import AWSPreparedRequest, AWSRequest

if TYPE_CHECKING:
    from aiobotocore.signers import AioRequestSigner
    from types_aiobotocore_s3.client import S3Client

_GET = "GetObject"
_SIGNATURES = ("s3v4", "v4")

_asked_name: ContextVar[str] = ContextVar("_asked_name")


class OneTrySession(AIOHTTPSession):
    """aiobotocore's HTTP session, without aiohttp's own second try."""

    def close_idle(self) -> None:
        """Close the connections that no request uses. If one connection hung, others of its age may hang as well."""
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


@dataclass(frozen=True)
class GetPattern:
    """A GET without its key and range, as botocore hands it to its signer."""

    url_start: str
    headers: Mapping[str, str]
    context: Mapping[str, Any]
    signer: AioRequestSigner

    async def signed(self, name: str, range_header: str | None) -> AWSPreparedRequest:
        """The GET of the object `name`, signed by botocore's signer, which renews credentials as ever."""
        headers = dict(self.headers) if range_header is None else {**self.headers, "Range": range_header}
        request = AWSRequest("GET", self.url_start + _quoted(name), headers)
        request.context = dict(self.context)  # the signer writes into it
        await self.signer.sign(_GET, request)  # type: ignore[arg-type]  # the stubs name another library's class
        return request.prepare()


class GetPatterns:
    """Records the pattern of the last GET that `client` signed. `last` is None before the first one, and for a bucket
    whose GETs do not fit: another signature than Version 4 in a header, or a URL that does not end with the key."""

    def __init__(self, client: S3Client) -> None:
        self.last: GetPattern | None = None
        client.meta.events.register(f"before-sign.s3.{_GET}", self._record)

    def expect(self, name: str) -> None:
        """Call this before `client.get_object` in the same task: the next GET is of the object `name`."""
        _asked_name.set(name)

    def _record(
        self, request: AWSRequest, request_signer: AioRequestSigner, signature_version: object, **_: Any
    ) -> None:
        """Called by botocore, and for a GET made from a pattern too."""
        end = _quoted(_asked_name.get(""))
        url = str(request.url)
        if end and url.endswith("/" + end) and "?" not in url and signature_version in _SIGNATURES:
            headers = {name: value for name, value in request.headers.items() if not _is_of_one_request(name)}
            self.last = GetPattern(url.removesuffix(end), headers, dict(request.context), request_signer)


def _quoted(name: str) -> str:
    """As botocore writes keys into paths."""
    return quote(name, safe="/~")


def _is_of_one_request(header: str) -> bool:
    return header.lower().startswith(("range", "amz-sdk-", "x-amzn-trace-id"))
