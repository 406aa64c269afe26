"""The seam between a broker process and the protocols that its clients speak.

A front door is one protocol: it listens, decodes requests, makes a `RequestContext` for each, calls `Broker`, and
encodes the answers. A new door is a folder beside `http/` and one line in `front_doors.py`. No door knows another.

    bind ─▶ serve ─────────────▶ drain ─▶ serve returns
            (until the process stops)      abort: serve returns at once
"""

from __future__ import annotations

import errno
import socket
from typing import Protocol

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid

_BACKLOG = 2048


class ServedBroker(Broker, Protocol):
    """A broker as its process runs it: started before its first call, closed after its last."""

    @property
    def peer_secrets(self) -> PeerSecrets:
        """The secrets by which the brokers of its cluster know each other."""

    def measurements(self) -> BrokerMeasurements:
        """The counts up to now."""

    async def start(self) -> None:
        """Open the log. Raises `Unavailable`, `Denied`, `Corrupt`."""

    async def hand_over(self) -> None:
        """Hand the shards it leads to other brokers, as far as there are any; requests are answered meanwhile."""

    async def must_stop(self) -> str:
        """Return, with the reason, once this process has to end."""

    async def aclose(self) -> None:
        """Commit and answer what is buffered, then release the store."""


class FrontDoor(Protocol):
    """One protocol of one broker process."""

    @property
    def address(self) -> str:
        """Where clients reach it, once bound. Empty: nowhere, and it is not served."""
        ...

    def bind(self, settings: Settings) -> Settings:
        """Bind its socket, before the store is touched, and return `settings` with the address that it has (port 0: the
        one that was found free). Raises `Invalid` if it cannot."""
        ...

    async def serve(self, broker: ServedBroker, settings: Settings) -> None:
        """Answer requests by `broker`, which has started. Returns after `drain`, once every request is answered."""
        ...

    def drain(self) -> None:
        """Refuse new requests, and end streams and long polls."""
        ...

    def abort(self) -> None:
        """End at once, whatever is unanswered."""
        ...


def bound_socket(host: str, port: int, flag: str) -> socket.socket:
    """A socket that listens on `host` and `port`. `flag` is named as the remedy. Raises `Invalid`."""
    try:
        return _listening(host, port)
    except OSError as error:  # also an unknown host name
        raise Invalid(_bind_failure(authority(host, port), flag, error)) from error


def authority(host: str, port: int) -> str:
    """``HOST:PORT`` as URLs have it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listening(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _bind_failure(place: str, flag: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{place} is in use by another process: stop that one, or choose another port with {flag}"
    return f"cannot listen on {place}: {error.strerror or error}"
