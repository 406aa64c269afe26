"""Parses the position in a partition where a read starts: ``N``, ``earliest``, ``latest``, ``-N`` or ``@time``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidelog.services.broker.api.fetch import EARLIEST, LATEST, Anchor, Position
from tidelog.services.http.bodies.timestamps import parse_iso_ms
from tidelog.services.http.v1.parameters import OFFSET_MAX
from tidelog.storage.records import TIMESTAMP_MS_MAX
from tidelog.wire.errors import Unreadable

_NUMBER = re.compile(r"-?[0-9]{1,19}")


def parse_position(text: str, name: str = "offset") -> Position:
    """Parse `text`. Raises `Unreadable`, which names the parameter `name`.

    >>> parse_position("-100")
    Position(anchor=<Anchor.FROM_END: 'from_end'>, value=100)
    """
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    if text.startswith("@"):
        return Position(Anchor.TIMESTAMP, _time_ms(text[1:], name))
    if _NUMBER.fullmatch(text) and abs(int(text)) <= OFFSET_MAX:
        number = int(text)
        return Position(Anchor.FROM_END, -number) if text[0] == "-" else Position(Anchor.OFFSET, number)
    raise Unreadable(
        f"{name} must be an offset, 'earliest', 'latest', -N (N before the end) or @time, not {text[:80]!r}", field=name
    )


def required_position(query: Mapping[str, str], name: str) -> Position:
    """The position in the parameter `name`, which must be there. Raises `Unreadable`."""
    if name not in query:
        raise Unreadable(f"{name} is missing: send ?{name}=earliest, latest, N, -N or @time", field=name)
    return parse_position(query[name], name)


def _time_ms(text: str, name: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text) and int(text) <= TIMESTAMP_MS_MAX:
        return int(text)
    try:
        return parse_iso_ms(text)
    except ValueError as error:
        raise Unreadable(
            f"@time must be ms since 1970 or ISO 8601 with a zone (such as @2026-01-31T12:00:00Z): {error}", field=name
        ) from error
