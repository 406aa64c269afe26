"""The settings of an S3 store, and the time limits of its requests. Reading them does not load the S3 library."""

from __future__ import annotations

from dataclasses import dataclass, field

BYTES_PER_S_MIN = 1 << 20
"""A slower connection is given up."""


@dataclass(frozen=True)
class S3Settings:
    """A setting that is None comes from the usual AWS settings: environment, profile, instance role.

    - `path_style`: None means path style at an endpoint that is not Amazon's.
    - `request_s`: the first time limit of a request without a body. It includes the wait for one of the
      `connections_max` connections.
    - `request_s_max`: the longest time limit of any request (`RequestLimits`).
    """

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    path_style: bool | None = None
    connections_max: int = 64
    connect_s_max: float = 3.0
    request_s: float = 5.0
    request_s_max: float = 60.0


def is_amazon(endpoint_url: str) -> bool:
    """Whether the endpoint is Amazon's own, where a bucket is a host name."""
    host = endpoint_url.split("://", 1)[-1].split("/", 1)[0].split(":", 1)[0]
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))


class RequestLimits:
    """How long a request to one store may take: a base between `first_s` and `longest_s`, and more for each byte of its
    body.

    A connection can hang: a device on the way forgets it, and neither side notices. A request on it must end within
    seconds, so that it can be sent again on another connection. A large body needs more time than a small one.

    The whole store can also be slow. With a fixed limit every request would then be given up and sent again for ever.
    So the base doubles, up to the longest limit, when a request reaches its limit. It returns to the first value when
    the store answers within that value. Requests that reach their limit at the same time count once."""

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
