"""Bounds the memory of requests: per connection, and of all connections together.

Bytes count from their arrival until the request is answered. A connection that is above its bound is not read until
answers have been written. While all connections together are above theirs (``queued.max.request.bytes``), a connection
is not read after it has sent something; the connections that wait are read again in turn. So what goes beyond the
bounds is at most one receive of each connection.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

CONNECTION_REQUESTS_MAX = 128
"""Requests of one connection that are not answered yet."""
CONNECTION_BYTES_MAX = 16 << 20
"""Their bytes. A request may be larger; then it is the only one."""


class Paused(Protocol):
    """A connection that waits for memory."""

    def memory_is_free(self) -> None:
        """Read on, or ask again by `RequestMemory.wait`."""


class RequestMemory:
    """The bytes of all requests in memory."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._waiting: OrderedDict[Paused, None] = OrderedDict()

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._bytes_max

    def take(self, count: int) -> None:
        """`count` bytes have arrived."""
        self._bytes += count

    def give_back(self, count: int) -> None:
        """`count` bytes are not needed any more; let connections that wait read on."""
        self._bytes -= count
        for _ in range(len(self._waiting)):
            if self.is_full:
                return
            connection, _none = self._waiting.popitem(last=False)
            connection.memory_is_free()

    def wait(self, connection: Paused) -> None:
        """Call `connection.memory_is_free` once there is memory."""
        self._waiting[connection] = None

    def forget(self, connection: Paused) -> None:
        """`connection` has ended."""
        self._waiting.pop(connection, None)
