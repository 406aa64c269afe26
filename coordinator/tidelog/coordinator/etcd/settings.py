"""The addresses of etcd and the means to authenticate."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tidelog.storage.errors import Invalid

TIMEOUT_S = 3.0
"""The default time limit of one call, including all its tries."""


@dataclass(frozen=True)
class EtcdSettings:
    """`endpoints`: ``http://HOST:PORT`` or ``https://HOST:PORT`` of the members, all with one scheme. `ca_file`
    authenticates the members (None: the system's authorities), `cert_file` and `key_file` authenticate this client.
    Raises `Invalid`."""

    endpoints: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise Invalid("name at least one endpoint of etcd", field="etcd.endpoints")
        if len({urlsplit(endpoint).scheme for endpoint in self.endpoints}) > 1:
            raise Invalid("etcd's endpoints must be all http or all https", field="etcd.endpoints")
        if len(set(self.targets)) < len(self.targets):
            raise Invalid("an endpoint of etcd is named twice", field="etcd.endpoints")
        if (self.username is None) != (self.password is None):
            raise Invalid("etcd needs a user name and a password, or neither", field="etcd.password")
        if (self.cert_file is None) != (self.key_file is None):
            raise Invalid("etcd needs a certificate and its key, or neither", field="etcd.key.file")
        if not self.tls and (self.ca_file or self.cert_file):
            raise Invalid("certificates are of use with https endpoints only", field="etcd.endpoints")
        if self.timeout_s <= 0:
            raise Invalid(f"the time for a call must be above 0 s, not {self.timeout_s}", field="etcd.timeout.ms")

    @property
    def tls(self) -> bool:
        """Whether the connections are encrypted."""
        return urlsplit(self.endpoints[0]).scheme == "https"

    @property
    def targets(self) -> tuple[str, ...]:
        """``HOST:PORT`` of each endpoint."""
        return tuple(_target(endpoint) for endpoint in self.endpoints)


def _target(endpoint: str) -> str:
    try:
        url = urlsplit(endpoint)
        if url.scheme in ("http", "https") and url.hostname and url.port and url.path in ("", "/"):
            return f"[{url.hostname}]:{url.port}" if ":" in url.hostname else f"{url.hostname}:{url.port}"
    except ValueError:  # the port is no number
        pass
    raise Invalid(f"{endpoint!r} is no endpoint of etcd; write http://HOST:PORT or https://...", field="etcd.endpoints")
