"""Bounds the memory of requests: per connection, and of all connections together.

Bytes count from their arrival until the request is answered. A connection that is above its bound is not read until
answers have been written. While all connections together are above theirs (``queued.max.request.bytes``), a connection
is read once more, at most `FULL_RECEIVE_BYTES`, and then not until there is memory; those that wait are read again in
turn. So the bound is exceeded by at most that for each connection, and by one `RECEIVE_BYTES`.

If the memory is full of parts of requests, no answer will make room. Then one connection at a time has the turn: it is
read on, for at most `TURN_S`, until its request is whole. So the bound is exceeded by one request at most. A connection
from which fewer than `TURN_BYTES_MIN` come in its turn is ended: others wait for the memory that its part takes, so a
few clients that send large requests byte by byte would hold up all.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from tidelog.services.doors.kafka_counts import KafkaCounts

CONNECTION_REQUESTS_MAX = 128
"""Requests of one connection that are not answered yet."""
CONNECTION_BYTES_MAX = 16 << 20
"""Their bytes. A request may be larger; then it is the only one."""

RECEIVE_BYTES = 256 * 1024
FULL_RECEIVE_BYTES = 4 * 1024
TURN_S = 1.0
TURN_BYTES_MIN = 256 * 1024


class Paused(Protocol):
    """A connection that waits for memory."""

    def memory_is_free(self) -> None:
        """Read on, or ask again by `RequestMemory.wait`."""

    def is_too_slow(self) -> None:
        """Others wait for its memory, and its request does not come: end the connection."""


class RequestMemory:
    """The bytes of all requests in memory. `_whole_bytes`: those of requests that have arrived to their end."""

    def __init__(self, bytes_max: int, counts: KafkaCounts) -> None:
        self._bytes_max = bytes_max
        self._counts = counts
        self._whole_bytes = 0
        self._waiting: OrderedDict[Paused, None] = OrderedDict()
        self._has_turn: Paused | None = None
        self._turn_bytes = 0
        self._turn_end: asyncio.TimerHandle | None = None

    @property
    def bytes(self) -> int:
        return self._counts.held_bytes

    @property
    def is_full(self) -> bool:
        return self._counts.held_bytes >= self._bytes_max

    def may_receive(self, connection: Paused) -> bool:
        return not self.is_full or connection is self._has_turn

    def receive_bytes_max(self, connection: Paused) -> int:
        """How many bytes `connection` may receive at once now."""
        return RECEIVE_BYTES if self.may_receive(connection) else FULL_RECEIVE_BYTES

    def take(self, connection: Paused, count: int) -> None:
        """`count` bytes have arrived."""
        self._counts.held_bytes += count
        if connection is self._has_turn:
            self._turn_bytes += count

    def is_whole(self, connection: Paused, count: int) -> None:
        """A request of `count` bytes has arrived to its end."""
        self._whole_bytes += count
        if connection is self._has_turn:
            self._end_turn()

    def give_back(self, count: int, *, whole: bool) -> None:
        """`count` bytes, of `whole` requests or of parts, are not needed any more: let those that wait read on."""
        self._counts.held_bytes -= count
        self._whole_bytes -= count if whole else 0
        for _ in range(len(self._waiting)):
            if self.is_full:
                break
            self._waiting.popitem(last=False)[0].memory_is_free()
        self._give_turn()

    def wait(self, connection: Paused) -> None:
        """Call `connection.memory_is_free` once there is memory, or once it has the turn."""
        self._waiting[connection] = None
        self._give_turn()

    def forget(self, connection: Paused) -> None:
        """`connection` has ended."""
        self._waiting.pop(connection, None)
        if connection is self._has_turn:
            self._end_turn()
            self._give_turn()

    def _give_turn(self) -> None:
        if self._waiting and self.is_full and not self._whole_bytes and self._has_turn is None:
            self._has_turn, _none = self._waiting.popitem(last=False)
            self._turn_bytes = 0
            self._turn_end = asyncio.get_running_loop().call_later(TURN_S, self._pass_turn)
            self._has_turn.memory_is_free()

    def _pass_turn(self) -> None:
        """The turn took too long: the next one is at the end of those that wait, if there is a next one."""
        slow, is_too_slow = self._has_turn, self._turn_bytes < TURN_BYTES_MIN
        self._end_turn()
        if slow is not None and is_too_slow:
            slow.is_too_slow()
        elif slow is not None:
            slow.memory_is_free()

    def _end_turn(self) -> None:
        self._has_turn = None
        if self._turn_end is not None:
            self._turn_end.cancel()
            self._turn_end = None
