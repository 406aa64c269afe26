"""A stream of requests and responses whose every failure is a `Refusal`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar, cast

import grpc
import grpc.aio

from tidelog.coordinator.etcd.endpoints import Endpoint, Endpoints
from tidelog.coordinator.etcd.refusals import Refusal, Verdict, refusal, refusal_of
from tidelog.coordinator.etcd.rpc import Metadata, Stream
from tidelog.storage.errors import Unavailable

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_T = TypeVar("_T")


async def unless_closed(endpoints: Endpoints, awaited: Awaitable[_T]) -> _T:
    """Await a call; gRPC cancels it when its channel is closed, which must not look like our task's own end."""
    try:
        return await awaited
    except (asyncio.CancelledError, grpc.aio.UsageError):
        if endpoints.closed and not _task_is_cancelled():
            raise Refusal(Verdict.FINAL, Unavailable("this key-value store was closed meanwhile")) from None
        raise


class OpenStream(Generic[_Request, _Response]):
    """A stream to one member."""

    def __init__(
        self, endpoints: Endpoints, endpoint: Endpoint, call: grpc.aio.StreamStreamCall[_Request, _Response]
    ) -> None:
        self._endpoints = endpoints
        self._endpoint = endpoint
        self._call = call
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.add_done_callback(self._mark_over)

    async def send(self, request: _Request) -> None:
        """Returns once it is on its way. Raises `Refusal`."""
        writing = asyncio.ensure_future(self._call.write(request))
        try:
            # grpc.aio lets a write wait for ever whose stream is cancelled before it stood
            await asyncio.wait((writing, self._over), return_when=asyncio.FIRST_COMPLETED)
            if self._over.done():
                await self.receive()  # tells why
            await self._guarded(writing)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def receive(self) -> _Response:
        """The next response. Raises `Refusal`, also at the stream's end."""
        response = await self._guarded(self._call.read())
        if response is grpc.aio.EOF:
            raise refusal_of("UNAVAILABLE", "the stream ended", self._endpoint.target)
        return cast("_Response", response)  # the stubs say `object` for the end of the stream

    def _mark_over(self, _: object) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def _guarded(self, awaited: Awaitable[_T]) -> _T:
        try:
            return await unless_closed(self._endpoints, awaited)
        except grpc.aio.AioRpcError as error:
            raise refusal(error, self._endpoint.target) from None
        except asyncio.CancelledError:
            if _task_is_cancelled():
                raise
            raise refusal_of("CANCELLED", "the member was left", self._endpoint.target) from None


@contextmanager
def opened(
    endpoints: Endpoints,
    endpoint: Endpoint,
    method: Stream[_Request, _Response],
    metadata: Metadata,
    timeout_s: float | None = None,
) -> Iterator[OpenStream[_Request, _Response]]:
    """A stream, which ends with the block, or when its member is left."""
    call = method.on(endpoint.channel)(metadata=metadata, timeout=timeout_s)
    try:
        with endpoint.streaming(call.cancel):
            yield OpenStream(endpoints, endpoint, call)
    finally:
        call.cancel()


def _task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
