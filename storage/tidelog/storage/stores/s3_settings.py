"""The settings of an S3 store, in a module of their own: reading them does not load the S3 library."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class S3Settings:
    """A setting that is None comes from the usual AWS settings: environment, profile, instance role.

    - `path_style`: None means path style at an endpoint that is not Amazon's.
    - `request_s`: the first time limit of a request without a body. It includes the wait for one of the
      `connections_max` connections.
    - `request_s_max`: the longest time limit of any request (`s3_limits`).
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
