"""How a client reaches its brokers: their addresses, the authorities that it trusts, and who it is.

`Admin`, `Consumer` and `Producer` take a `BrokerAccess` wherever they take an address:

    Admin(BrokerAccess("https://log.example.com", ca_file="ca.pem", user="ann", password=secret))

The password is sent with each request in HTTP's basic form. A broker does not check it yet; a proxy in front of it can.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from ssl import SSLContext, SSLError, create_default_context
from typing import TypeAlias

from urllib3.exceptions import LocationValueError
from urllib3.util import parse_url

from tidelog.storage.errors import Invalid


@dataclass(frozen=True)
class BrokerAccess:
    """`addresses`: ``http://HOST:PORT``, several with commas. `ca_file`: PEM file of the authorities that sign the
    brokers' certificates; None: those of the system. Raises `Invalid` for a file that holds none, and for a user whose
    password is missing or would cross a network unencrypted."""

    addresses: str
    ca_file: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.ca_file is not None:
            _ = self.tls_context()
        if (self.user is None) != (self.password is None):
            missing = "password (TIDELOG_PASSWORD)" if self.password is None else "user"
            raise Invalid(f"a user and a password belong together: the {missing} is missing", field="user")
        if self.user is not None and (":" in self.user or not self.user):
            raise Invalid("the name of a user is not empty and has no colon", field="user")
        if self.user is not None and (open_address := next(filter(_is_unencrypted, self.address_list), None)):
            raise Invalid(
                f"the password would go unencrypted to {open_address}: use an https address, or one of this machine",
                field="broker",
            )

    @property
    def address_list(self) -> tuple[str, ...]:
        """The addresses one by one, without a slash at the end. Raises `Invalid` for anything that is no address."""
        return tuple(_checked_broker(address.strip()) for address in self.addresses.split(","))

    def at(self, address: str) -> BrokerAccess:
        """The same access to another broker of the cluster, without the password if it would go there unencrypted."""
        if self.user is not None and _is_unencrypted(_checked_broker(address)):
            return BrokerAccess(address, self.ca_file)
        return replace(self, addresses=address)

    def headers(self) -> dict[str, str]:
        """The headers that say who the client is."""
        if self.user is None:
            return {}
        credentials = f"{self.user}:{self.password}".encode()  # RFC 7617: UTF-8
        return {"authorization": f"Basic {b64encode(credentials).decode()}"}

    def tls_context(self) -> SSLContext | None:
        """The TLS settings if `ca_file` is given; None: the system's. Raises `Invalid`."""
        if self.ca_file is None:
            return None
        path = str(Path(self.ca_file).expanduser())
        try:
            return create_default_context(cafile=path)
        except SSLError as error:
            raise Invalid(f"{path} holds no certificate of an authority in PEM form", field="ca-file") from error
        except OSError as error:
            raise Invalid(f"{path} cannot be read: {error.strerror}", field="ca-file") from error


Broker: TypeAlias = str | BrokerAccess
"""Where a client finds its brokers: addresses alone, or with the means to authenticate."""


def access_of(broker: Broker) -> BrokerAccess:
    return broker if isinstance(broker, BrokerAccess) else BrokerAccess(broker)


def _checked_broker(url: str) -> str:
    """`url` without a slash at its end. Raises `Invalid` if it is not the URL of a broker."""
    text = url if "://" in url else f"http://{url}"
    try:
        parsed = parse_url(text)
    except LocationValueError as error:
        raise Invalid(f"{url!r} is not a broker's URL ({error}): use http://HOST:PORT", field="broker") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise Invalid(f"{url!r} is not a broker's URL: use http://HOST:PORT", field="broker")
    return text.rstrip("/")


def _is_unencrypted(address: str) -> bool:
    """Whether `address` is not https and not on this machine."""
    url = parse_url(address)
    if url.scheme == "https" or url.host == "localhost":
        return False
    try:
        return not ip_address((url.host or "").strip("[]")).is_loopback
    except ValueError:  # a name
        return True
