"""Which names a request may call this broker by, in its Host header: a defence against DNS rebinding.

A web page can point a name of its own at this broker's address, and then counts as the same origin: the browser lets
it read and change everything. Only the Host header, which the browser sets, tells: it has the page's name. So a Host is

- an IP address, which a page cannot rebind, or ``localhost``;
- the host of ``advertised.address`` or of the setting ``host``;
- a name that ``http.hosts.allowed`` lists: ``broker.example.com``, ``*.example.com`` for all below, ``*`` for any.

A request without a Host comes from no browser and passes. So do ``/healthz`` and ``/readyz``: load balancers ask them
under any name, and their answers say nothing of the log.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from tidelog.services.http.answers.verdicts import HostRefused
from tidelog.services.http.front.request_head import RequestHead

PROBES = frozenset({"/healthz", "/readyz"})
KNOWN_MAX = 1_024
"""Host headers whose check is remembered."""


class HostCheck:
    """`own`: this broker's hosts; `allowed`: further names and patterns."""

    def __init__(self, own: Iterable[str], allowed: Iterable[str]) -> None:
        names = {name.lower().rstrip(".") for name in (*own, *allowed)}
        self._any = "*" in names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._names = frozenset({"localhost", *names})
        self._known: set[bytes] = set()

    def check(self, head: RequestHead) -> None:
        """Raises `HostRefused`."""
        host = head.headers.get(b"host")
        if host is None or host in self._known or self._any or head.path in PROBES:
            return
        name = host_name(host.decode("latin-1"))
        if not (name in self._names or name.endswith(self._suffixes) or _is_ip_address(name)):
            raise HostRefused(
                f"this broker is not called {name[:80]!r}: use an IP address, localhost or its advertised.address, "
                "or add the name to the broker's http.hosts.allowed"
            )
        if len(self._known) < KNOWN_MAX:
            self._known.add(host)


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
