"""Listeners in Kafka's form: ``NAME://HOST:PORT``, several with commas.

``listeners`` says where a broker listens, ``advertised.listeners`` under which addresses clients reach each of them, by
name. A client stays on the listener that it came in by: every address that it is told is of that name.

Without ``listeners``, a broker listens at `DEFAULT_PORT` of its ``host`` if that port is free (`default_listener`).
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tidelog.storage.errors import Invalid

LISTENERS_MAX = 16
NO_LISTENERS = "none"
DEFAULT_NAME = "PLAINTEXT"
DEFAULT_PORT = 9092
ANY_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104  # compared, not bound
_FORM = re.compile(r"([A-Za-z0-9_.-]{1,64})://(\[[0-9a-fA-F:.%]+\]|[^/:,\[\]\s]*):(\d{1,5})")


@dataclass(frozen=True)
class Listener:
    """One listener. `host` is without brackets; empty: every address of the machine."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{self.authority}"

    @property
    def authority(self) -> str:
        """``HOST:PORT``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listeners(setting: str, value: str | None) -> tuple[Listener, ...]:
    """The listeners in `value` of `setting`, of which ``none`` and None have none. Raises `Invalid`."""
    parts = () if value == NO_LISTENERS else (value or "").split(",")
    found = tuple(_parsed(setting, part.strip()) for part in parts if part.strip())
    names = {listener.name for listener in found}
    if len(names) < len(found):
        raise Invalid(f"{setting} names a listener twice: give each its own name", field=setting)
    if len(found) > LISTENERS_MAX:
        raise Invalid(f"{setting} has {len(found)} listeners; at most {LISTENERS_MAX} are possible", field=setting)
    return found


def listeners_text(listeners: tuple[Listener, ...]) -> str:
    """The text that `parse_listeners` reads."""
    return ",".join(map(str, listeners))


def default_listener(host: str) -> Listener:
    """The listener of a broker that listens for HTTP on `host` and has no ``listeners``."""
    return Listener(DEFAULT_NAME, host, DEFAULT_PORT)


def told_listener(bound: Listener, advertised_address: str | None) -> Listener:
    """The default listener as clients are told it: with the host of ``advertised.address``, otherwise its own, or the
    name of the machine if it is bound to every address."""
    host = urlsplit(advertised_address or "").hostname
    return replace(bound, host=host or (socket.gethostname() if bound.host in ANY_ADDRESSES else bound.host))


def addresses_by_name(setting: str, value: str | None) -> dict[str, str]:
    """``HOST:PORT`` of each listener in `value` of `setting`, by name. Raises `Invalid`."""
    return {listener.name: listener.authority for listener in parse_listeners(setting, value)}


def _parsed(setting: str, part: str) -> Listener:
    found = _FORM.fullmatch(part)
    if not found or int(found[3]) > 65_535:
        raise Invalid(f"{setting}: {part[:80]!r} is not NAME://HOST:PORT, as PLAINTEXT://0.0.0.0:9092", field=setting)
    return Listener(found[1].upper(), found[2].strip("[]"), int(found[3]))
