"""A stream of requests and responses to one member; each failure is raised as `CallFailed`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message

from tidelog.coordinator.etcd.endpoints import Endpoint, Endpoints
from tidelog.coordinator.etcd.errors import call_failed, failed_with, store_closed
from tidelog.coordinator.etcd.rpc import Answer, Metadata, Stream

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Answer)
_T = TypeVar("_T")


async def unless_closed(endpoints: Endpoints, awaited: Awaitable[_T]) -> _T:
    """Await a call. If the store is closed, gRPC cancels the call; raise `CallFailed` then, because our task goes
    on."""
    try:
        return await awaited
    except (asyncio.CancelledError, grpc.aio.UsageError):
        if endpoints.closed and not _task_is_cancelled():
            raise store_closed() from None
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
        """Return when gRPC has taken the request. Raises `CallFailed`."""
        writing = asyncio.ensure_future(self._call.write(request))
        try:
            # in grpc.aio a write waits for ever if its stream is cancelled before it is established
            await asyncio.wait((writing, self._over), return_when=asyncio.FIRST_COMPLETED)
            if self._over.done():
                await self.receive()  # raises the reason
            await self._guarded(writing)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def receive(self) -> _Response:
        """The next response. Raises `CallFailed`, also at the end of the stream."""
        response = await self._guarded(self._call.read())
        if response is grpc.aio.EOF:
            raise failed_with("UNAVAILABLE", "the stream ended", self._endpoint.target)
        return cast("_Response", response)  # the stubs say `object` for the end of the stream

    def _mark_over(self, _: object) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def _guarded(self, awaited: Awaitable[_T]) -> _T:
        try:
            return await unless_closed(self._endpoints, awaited)
        except grpc.aio.AioRpcError as error:
            raise call_failed(error, self._endpoint.target) from None
        except asyncio.CancelledError:
            if _task_is_cancelled():
                raise
            raise failed_with("CANCELLED", "calls moved to another member", self._endpoint.target) from None


@contextmanager
def opened(
    endpoints: Endpoints,
    endpoint: Endpoint,
    method: Stream[_Request, _Response],
    metadata: Metadata,
    timeout_s: float | None = None,
) -> Iterator[OpenStream[_Request, _Response]]:
    """A stream that ends with the block, or when calls move to another member."""
    call = method.on(endpoint.channel)(metadata=metadata, timeout=timeout_s)
    try:
        with endpoint.streaming(call.cancel):
            yield OpenStream(endpoints, endpoint, call)
    finally:
        call.cancel()


def _task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
