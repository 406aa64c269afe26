"""How long a request to S3 may take: a base, and more for each byte of its body.

A connection can hang: a device on the way forgets it, and neither side hears of that. A request on it has to end in
seconds, so that it is sent again on another connection; a large body needs longer than a small one.

A store may be slow as a whole. If the limit were fixed, every request would be given up and sent again for ever. So the
base doubles when a request reaches its limit, up to the longest, and is the first one again once the store answers
within that. Requests that reach their limit together count once.
"""

from __future__ import annotations

BYTES_PER_S_MIN = 1 << 20
"""A connection slower than this is given up."""


class RequestLimits:
    """The limits of one store, from `first_s` to `longest_s`."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = min(first_s, longest_s)
        self._longest_s = longest_s
        self._base_s = self._first_s

    @property
    def longest_s(self) -> float:
        """Of any request."""
        return self._longest_s

    def seconds(self, body_bytes: int) -> float:
        """The limit of a request or answer with a body of that size."""
        return min(self._longest_s, self._base_s + body_bytes / BYTES_PER_S_MIN)

    def timed_out(self, limit_s: float) -> None:
        """A request took longer than `limit_s`, which was its limit."""
        if limit_s >= self._base_s:
            self._base_s = min(self._longest_s, 2 * self._base_s)

    def answered(self, seconds: float) -> None:
        """A request was answered in that time."""
        if seconds <= self._first_s:
            self._base_s = self._first_s
