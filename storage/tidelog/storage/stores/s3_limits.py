"""How long a request to S3 may take: a base, and more for each byte of its body.

A connection can hang: a device on the way forgets it, and neither side notices. A request on it must end within
seconds, so that it can be sent again on another connection. A large body needs more time than a small one.

The whole store can also be slow. With a fixed limit every request would then be given up and sent again for ever. So
the base doubles, up to the longest limit, when a request reaches its limit. It returns to the first value when the
store answers within that value. Requests that reach their limit at the same time count once.
"""

from __future__ import annotations

BYTES_PER_S_MIN = 1 << 20
"""A slower connection is given up."""


class RequestLimits:
    """The time limits of one store, between `first_s` and `longest_s`."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = min(first_s, longest_s)
        self.longest_s = longest_s
        self._base_s = self._first_s

    def seconds(self, body_bytes: int) -> float:
        """The limit of a request or answer with a body of `body_bytes`."""
        return min(self.longest_s, self._base_s + body_bytes / BYTES_PER_S_MIN)

    def timed_out(self, limit_s: float) -> None:
        """A request reached its limit, `limit_s`."""
        if limit_s >= self._base_s:
            self._base_s = min(self.longest_s, 2 * self._base_s)

    def answered(self, seconds: float) -> None:
        """A request was answered within `seconds`."""
        if seconds <= self._first_s:
            self._base_s = self._first_s
