"""Cuts the bytes of a connection into frames: four bytes of length, then the request.

A frame that is larger than what was received at once gets memory of its own, and the rest of it is received straight
into that, so the bytes of its records are not copied. The operating system gives that memory as the bytes arrive
(`numpy.empty`), so a length without bytes costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidelog.services.kafka.protocol.api import Malformed

LENGTH_BYTES = 4
SCRATCH_BYTES = 64 * 1024


class FrameReader:
    """The frames of one connection. `scratch` is shared by all connections of a loop: the transport fills it and hands
    it over in one step."""

    __slots__ = ("_bytes_max", "_filled", "_frame", "_head", "_scratch")

    def __init__(self, scratch: memoryview, bytes_max: int) -> None:
        self._scratch = scratch
        self._bytes_max = bytes_max
        self._head = b""
        self._frame: memoryview | None = None
        self._filled = 0

    @property
    def is_between(self) -> bool:
        """Whether the last byte received ended a frame."""
        return self._frame is None and not self._head

    def buffer(self, bytes_max: int) -> memoryview:
        """Where to receive at most `bytes_max` bytes into; then `received` must be called."""
        if self._frame is None:
            return self._scratch[:bytes_max]
        return self._frame[self._filled : self._filled + bytes_max]

    def received(self, count: int) -> Iterator[memoryview]:
        """The frames that `count` bytes in `buffer` have completed. Raises `Malformed`."""
        if self._frame is None:
            yield from self._cut(self._scratch[:count])
            return
        self._filled += count
        if self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            yield frame

    def _cut(self, given: memoryview) -> Iterator[memoryview]:
        at = 0
        while at < len(given):
            missing = LENGTH_BYTES - len(self._head)
            self._head += given[at : at + missing]
            at += missing
            if len(self._head) == LENGTH_BYTES:
                size, self._head = self._checked(int.from_bytes(self._head, "big", signed=True)), b""
                if at + size <= len(given):
                    yield memoryview(bytes(given[at : at + size]))
                else:
                    self._begin(size, given[at:])
                at += size

    def _begin(self, size: int, first: memoryview) -> None:
        self._frame = np.empty(size, np.uint8).data
        self._frame[: len(first)] = first
        self._filled = len(first)

    def _checked(self, size: int) -> int:
        if not 0 <= size <= self._bytes_max:
            raise Malformed(
                f"the length of the request is {size:,} and socket.request.max.bytes is {self._bytes_max:,}: "
                "the client does not speak Kafka's protocol, or its requests are too large"
            )
        return size


def new_scratch() -> memoryview:
    """Memory for the `FrameReader`s of one event loop."""
    return memoryview(bytearray(SCRATCH_BYTES))
