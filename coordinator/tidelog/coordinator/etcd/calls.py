"""Makes one call to etcd: within its deadline, on any member that answers, with a token, repeated only if that is safe.

A read may be repeated. A write is repeated only if the failed try certainly did nothing: no connection was established,
the member had no leader, or the token was rejected. After any other failure the outcome is unknown, and the caller gets
`Unavailable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc.aio
from google.protobuf.message import Message

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.endpoints import Endpoint, Endpoints
from tidelog.coordinator.etcd.errors import CallFailed, Effect, call_failed, needs_no_token, no_answer, store_closed
from tidelog.coordinator.etcd.incarnations import IncarnationTracker
from tidelog.coordinator.etcd.rpc import AUTHENTICATE, RANGE, Answer, Metadata, Unary
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.streams import unless_closed
from tidelog.storage.backoff import Backoff
from tidelog.storage.runtime import Runtime

TRIES_MIN = 3
"""Each try of a repeatable call gets at most this fraction of the call's time, so a silent member does not use it
up."""
_BACKOFF = Backoff(first_s=0.05, max_s=0.5)
_REQUIRE_LEADER = ("hasleader", "true")
"""A member that is cut off from the others refuses calls and ends its watches at once, instead of staying silent."""


_Answer = TypeVar("_Answer", bound=Answer)
_Request = TypeVar("_Request", bound=Message)

Send = Callable[[Endpoint, Metadata, float], Awaitable[_Answer]]
"""Sends a request to a member and awaits the answer for so many seconds. Raises `AioRpcError` or `CallFailed`."""


class Calls:
    """Makes calls; all of them share the current member, the token and the known state of the store."""

    def __init__(self, settings: EtcdSettings, runtime: Runtime) -> None:
        self.endpoints = Endpoints(settings, runtime.entropy)
        self.tokens = Tokens(settings)
        self.incarnations = IncarnationTracker()
        self.runtime = runtime
        self.timeout_s = settings.timeout_s

    @property
    def try_s(self) -> float:
        """The time limit of one try if another one may follow."""
        return self.timeout_s / (TRIES_MIN if len(self.endpoints) > 1 else 1)

    async def run(self, send: Send[_Answer], *, repeatable: bool, linearizable: bool = True) -> _Answer:
        """The answer to `send`. Raises the errors that `errors` maps."""
        ends_s, failures, renewed = self._now_s() + self.timeout_s, 0, False
        while True:
            endpoint, begun = self.endpoints.current, self.incarnations.known
            try:
                answer = await self._try(endpoint, send, ends_s, repeatable)
            except CallFailed as failed:
                if failed.effect is Effect.TOKEN_REJECTED and not renewed:
                    renewed = True
                    continue
                if failed.effect in (Effect.TOKEN_REJECTED, Effect.FINAL):
                    raise failed.error from None
                self.endpoints.leave(endpoint, str(failed))
                failures += 1
                safe = repeatable or failed.effect is Effect.NONE
                if not safe or not await self._may_try_again(failures, ends_s):
                    raise failed.error from None
            else:
                self.incarnations.observe(answer.header, begun=begun, linearizable=linearizable)
                return answer

    async def unary(
        self, method: Unary[_Request, _Answer], request: _Request, *, repeatable: bool, linearizable: bool = True
    ) -> _Answer:
        """The answer to one request."""

        async def send(endpoint: Endpoint, metadata: Metadata, timeout_s: float) -> _Answer:
            call = method.on(endpoint.channel)(request, timeout=timeout_s, metadata=metadata)
            return await unless_closed(self.endpoints, call)

        return await self.run(send, repeatable=repeatable, linearizable=linearizable)

    async def current_state(self) -> pb.ResponseHeader:
        """The header of a linearizable answer without contents."""
        nothing = pb.RangeRequest(key=b"\0", count_only=True)
        return (await self.unary(RANGE, nothing, repeatable=True)).header

    async def _try(self, endpoint: Endpoint, send: Send[_Answer], ends_s: float, repeatable: bool) -> _Answer:
        metadata = await self.prepare(endpoint, min(self.try_s, ends_s - self._now_s()))
        left_s = ends_s - self._now_s()
        try:
            return await send(endpoint, metadata, min(self.try_s, left_s) if repeatable else left_s)
        except grpc.aio.AioRpcError as error:
            failed = call_failed(error, endpoint.target)
        except CallFailed as raised:
            failed = raised
        if failed.effect is Effect.TOKEN_REJECTED:
            self.tokens.forget(metadata)
        raise failed

    async def prepare(self, endpoint: Endpoint, timeout_s: float) -> Metadata:
        """Connect and get a token. If it raises `CallFailed`, the request was not sent."""
        self._check_open()
        try:
            async with asyncio.timeout(timeout_s):
                await unless_closed(self.endpoints, endpoint.settle())
                metadata = await unless_closed(self.endpoints, self.tokens.metadata(endpoint.channel, timeout_s))
        except TimeoutError:
            raise no_answer(endpoint.target, "no connection, or no token,", timeout_s) from None
        except grpc.aio.AioRpcError as error:
            raise call_failed(error, endpoint.target, sent=False) from None
        self._check_open()  # a closed channel takes no call
        return metadata

    def _check_open(self) -> None:
        if self.endpoints.closed:
            raise store_closed()

    async def _may_try_again(self, failures: int, ends_s: float) -> bool:
        """Whether there is time for another try. Waits first if every member has failed once more."""
        wait_s = 0.0
        if failures % len(self.endpoints) == 0:
            wait_s = _BACKOFF.delay_s(failures // len(self.endpoints), self.runtime.entropy)
        if self._now_s() + wait_s >= ends_s:
            return False
        await self.runtime.clock.sleep(wait_s)
        return True

    def _now_s(self) -> float:
        return self.runtime.clock.monotonic()


class Tokens:
    """The token that authenticates all calls: requested with user and password, and again after it was rejected."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._settings = settings
        self._token: str | None = None if settings.username else ""  # "": none is needed
        self._fetching = asyncio.Lock()

    async def metadata(self, channel: grpc.aio.Channel, timeout_s: float) -> Metadata:
        """The metadata of a call. Raises `AioRpcError`."""
        if self._token is None:
            async with self._fetching:
                if self._token is None:
                    self._token = await self._fetched(channel, timeout_s)
        return (_REQUIRE_LEADER, ("token", self._token)) if self._token else (_REQUIRE_LEADER,)

    def forget(self, rejected: Metadata) -> None:
        """Drop the token in `rejected`, unless another one has replaced it since."""
        if self._settings.username and ("token", self._token or "") in (*rejected, ("token", "")):
            self._token = None

    async def _fetched(self, channel: grpc.aio.Channel, timeout_s: float) -> str:
        request = pb.AuthenticateRequest(name=self._settings.username or "", password=self._settings.password or "")
        try:
            answer = await AUTHENTICATE.on(channel)(request, timeout=timeout_s, metadata=(_REQUIRE_LEADER,))
        except grpc.aio.AioRpcError as error:
            if needs_no_token(error):
                return ""  # as etcd's own client does
            raise
        return answer.token
