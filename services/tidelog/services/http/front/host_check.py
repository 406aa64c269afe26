"""Refuses requests whose Host header is not a name of this broker: a defence against DNS rebinding.

The owner of a web page can point the page's own host name at this broker's address. The browser then treats the broker
as the page's origin and lets the page read and change everything. Only the Host header, which the browser sets, shows
it: it contains the page's name. So a Host must be one of these:

- an IP address, which cannot be rebound, or ``localhost``;
- the host of ``advertised.address`` or of the setting ``host``;
- a name in ``http.hosts.allowed``: ``broker.example.com``, ``*.example.com`` for all names below, ``*`` for any.

A request without a Host passes, because no browser sends one. ``/healthz`` and ``/readyz`` pass, because load balancers
use any name, and the answers reveal nothing about the log.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from tidelog.services.http.front.request_head import RequestHead
from tidelog.wire.errors import HostRefused

PROBES = frozenset({"/healthz", "/readyz"})
CACHED_MAX = 1_024
"""Host headers whose check is cached."""


class HostCheck:
    """`own`: this broker's hosts; `allowed`: further names and patterns."""

    def __init__(self, own: Iterable[str], allowed: Iterable[str]) -> None:
        names = {name.lower().rstrip(".") for name in (*own, *allowed)}
        self._any = "*" in names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._names = frozenset({"localhost", *names})
        self._allowed = lru_cache(maxsize=CACHED_MAX)(self._is_allowed)

    def check(self, head: RequestHead) -> None:
        """Raises `HostRefused`."""
        host = head.headers.get(b"host")
        if host is None or self.allows(host) or head.path in PROBES:
            return
        name = host_name(host.decode("latin-1"))
        raise HostRefused(
            f"{name[:80]!r} is not a name of this broker: use an IP address, localhost or its advertised.address, "
            "or add the name to the broker's http.hosts.allowed"
        )

    def allows(self, host: bytes) -> bool:
        """Whether `host`, a value of the Host header, is a name of this broker."""
        return self._any or self._allowed(host)

    def _is_allowed(self, host: bytes) -> bool:
        name = host_name(host.decode("latin-1"))
        return name in self._names or name.endswith(self._suffixes) or _is_ip_address(name)


def host_name(authority: str) -> str:
    """The host of ``HOST``, ``HOST:PORT`` or ``[IPV6]:PORT``, in lower case, without brackets or a final dot."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower().rstrip(".")


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
