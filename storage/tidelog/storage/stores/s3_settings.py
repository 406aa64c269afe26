"""The settings of an S3 store: a value, so that reading it does not load the S3 library."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class S3Settings:
    """What is None comes from the usual AWS settings: environment, profile, instance role.

    `path_style` None means: path style at an endpoint that is not Amazon's. `request_s` is how long a request without a
    body may take at first, its wait for one of the `connections_max` connections included; `request_s_max` is the
    longest that any request may take (`s3_limits`).
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
