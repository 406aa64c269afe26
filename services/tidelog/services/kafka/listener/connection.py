"""One connection of a Kafka client.

Requests are placed one after the other in the order of arrival, without waiting for answers (`protocol.api.Api`);
answers are written in the order of requests. Two requests wait nevertheless, so that answers do not fill the memory: a
long poll until the requests before it are answered (a client has one under way), and all while the client does not read
its answers. The connection reads no further while

- its client does not read its answers,
- it is above its bounds of unanswered requests or their bytes, or all connections together are (`request_memory`),
- the door drains.

So TCP slows its client down, and no other one. A request that cannot be read ends the connection, with a log line.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tidelog.services.kafka.listener.frames import LENGTH_BYTES, FrameReader
from tidelog.services.kafka.listener.placed_requests import PlacedRequest, PlacedRequests
from tidelog.services.kafka.listener.request_memory import CONNECTION_BYTES_MAX, CONNECTION_REQUESTS_MAX
from tidelog.services.kafka.protocol.api import Malformed
from tidelog.services.kafka.protocol.headers import asks_for_long_poll

if TYPE_CHECKING:
    from tidelog.services.kafka.listener.connections import Connections

_log = logging.getLogger(__name__)
_FAILED = "a request of a Kafka client failed; its connection is closed"


@dataclass(frozen=True, slots=True)
class Client:
    """Where a connection comes from. `listener`: the name of the listener that accepted it."""

    listener: str
    host: str
    port: int


Place = Callable[[memoryview, Client], Awaitable[PlacedRequest]]
"""Places the request in a frame. Raises `Malformed`."""


class KafkaConnection(asyncio.BufferedProtocol):
    """See the module. `active_s`: when bytes were last received or written."""

    def __init__(self, listener: str, connections: Connections, place: Place) -> None:
        self._listener = listener
        self._connections = connections
        self._memory = connections.memory
        self._place_request = place
        self._frames = FrameReader(connections.scratch, connections.bounds.frame_bytes_max)
        self._arrived: deque[memoryview] = deque()
        self._placed = PlacedRequests(self._flush)
        self._placing: asyncio.Task[None] | None = None
        self._held_bytes = 0
        self._request_bytes = 0
        self._is_reading = True
        self._is_slow = False
        self._is_draining = False
        self._is_open = False
        self._transport: asyncio.Transport
        self._client = Client(listener, "", 0)
        self.active_s = connections.now_s()

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._client = Client(self._listener, host, port)
        self._is_open = self._connections.opened(self, host)
        if not self._is_open:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frames.buffer(self._memory.receive_bytes_max(self))

    def buffer_updated(self, nbytes: int) -> None:
        self.active_s = self._connections.now_s()
        self._held_bytes += nbytes
        self._memory.take(self, nbytes)
        self._connections.counts.received_bytes += nbytes
        try:
            for frame in self._frames.received(nbytes):
                self._arrived.append(frame)
                self._request_bytes += _counted(frame)
                self._memory.is_whole(self, _counted(frame))
        except Malformed as error:
            self.end(str(error))
        self._regulate()
        self._start_placing()

    def pause_writing(self) -> None:
        self._is_slow = True
        self._regulate()

    def resume_writing(self) -> None:
        self._is_slow = False
        self.active_s = self._connections.now_s()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Requests that have arrived are carried out nevertheless: their client may have asked for no answer. They hold
        their memory until then."""
        if self._is_open:
            self._is_open = False
            self._connections.closed(self, self._client.host)
        self._memory.forget(self)
        self._memory.give_back(self._held_bytes - self._request_bytes, whole=False)
        self._placed.abandon()
        self._start_placing()

    # --- called by `Connections` and `RequestMemory`

    def memory_is_free(self) -> None:
        self._regulate()

    def is_too_slow(self) -> None:
        self.end("the memory for requests is full, and the rest of a request came too slowly", at_once=True)

    def drain(self) -> None:
        """Read no more, and close once all requests are answered."""
        self._is_draining = True
        self._regulate()
        self._close_if_drained()

    def overdue(self, now_s: float) -> str | None:
        """Why the connection has to end now, if it has to."""
        silent_s, bounds = now_s - self.active_s, self._connections.bounds
        if not self._frames.is_between and silent_s > bounds.read_timeout_s and self._is_within_bounds():
            lack = "nothing more" if self._is_reading else "there was no memory for the rest"
            return f"a part of a request has arrived, and {lack} for {silent_s:.0f} s"
        if silent_s > bounds.idle_s and self._is_slow:
            return f"the client has not read its answers for {silent_s:.0f} s"
        return "" if silent_s > bounds.idle_s and not self._request_bytes else None

    def end(self, reason: str = "", *, at_once: bool = False) -> None:
        """Close the connection, and log the `reason`, if there is one."""
        if reason and self._is_open:
            self._connections.ended(self._client, reason)
        if at_once or self._is_slow:
            self._transport.abort()
        else:
            self._transport.close()

    # --- placing and answering

    async def _place_arrived(self) -> None:
        while self._arrived and not self._must_wait(self._arrived[0]):
            frame = self._arrived.popleft()
            try:
                self._placed.add(await self._place_request(frame, self._client), is_wanted=self._is_open)
            except Malformed as error:
                self._drop(frame, str(error))
            except Exception:
                _log.exception(_FAILED)
                self._drop(frame)
        self._placing = None
        self._after_progress()

    def _must_wait(self, frame: memoryview) -> bool:
        """Whether the request in `frame` is placed later: answers in memory would have no bound otherwise."""
        return self._is_open and (self._is_slow or (bool(self._placed) and asks_for_long_poll(frame)))

    def _start_placing(self) -> None:
        if self._arrived and self._placing is None and not self._must_wait(self._arrived[0]):
            self._placing = asyncio.get_running_loop().create_task(self._place_arrived())

    def _drop(self, frame: memoryview, reason: str = "") -> None:
        """End the connection at `frame`. The requests after it are not placed, those before it are."""
        self.end(reason)
        self._finished(_counted(frame) + sum(map(_counted, self._arrived)))
        self._arrived.clear()

    def _flush(self) -> None:
        for request in self._placed.finished():
            self._finished(request.frame_bytes + LENGTH_BYTES)
            self._write(request)
            if self._is_slow and self._is_open:
                break
        self._after_progress()

    def _write(self, request: PlacedRequest) -> None:
        try:
            buffers = request.encoded()
        except asyncio.CancelledError:
            self.end()
        except Malformed as error:
            self.end(str(error))
        except Exception:
            _log.exception(_FAILED)
            self.end()
        else:
            seconds = self._connections.now_s() - request.began_s
            sent_bytes = sum(memoryview(buffer).nbytes for buffer in buffers)
            self._connections.counts.answered(request.api.name, request.version, seconds, sent_bytes)
            self._connections.counts.failed(request.api.name, request.errors)
            if self._is_open:
                self._transport.writelines(buffers)

    def _after_progress(self) -> None:
        self._start_placing()
        if self._is_open:
            self._regulate()
            self._close_if_drained()

    def _close_if_drained(self) -> None:
        if self._is_draining and not self._arrived and self._placing is None and not self._placed:
            self._transport.close()

    # --- bounds

    def _finished(self, count: int) -> None:
        """Requests of `count` bytes are answered, or never will be."""
        self._request_bytes -= count
        self._held_bytes -= count
        self._memory.give_back(count, whole=True)

    def _regulate(self) -> None:
        """Read on, or stop reading."""
        within_own = self._is_within_bounds()
        if within_own and not self._memory.may_receive(self):
            self._memory.wait(self)  # this may give it the turn
        may_read = within_own and self._memory.may_receive(self)
        if may_read == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = may_read
        if may_read:
            self.active_s = self._connections.now_s()
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _is_within_bounds(self) -> bool:
        unanswered = len(self._arrived) + len(self._placed) + (self._placing is not None)
        above = unanswered >= CONNECTION_REQUESTS_MAX or (unanswered and self._held_bytes >= CONNECTION_BYTES_MAX)
        return not (above or self._is_slow or self._is_draining)


def _counted(frame: memoryview) -> int:
    """The bytes of a frame with its length."""
    return len(frame) + LENGTH_BYTES
