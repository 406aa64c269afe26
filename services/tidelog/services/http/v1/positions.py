"""Where to start reading, as clients write it: ``N``, ``earliest``, ``latest``, ``-N`` or ``@time``."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tidelog.services.broker.api.fetch import Anchor, Position
from tidelog.services.http.answers.problems import Unreadable
from tidelog.services.http.v1.parameters import OFFSET_MAX

EARLIEST = Position(Anchor.EARLIEST)
LATEST = Position(Anchor.LATEST)
TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: what every reader of the archive can show."""

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_position(text: str, name: str = "offset") -> Position:
    """`text` as a position. `Unreadable` names the parameter `name`.

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
        f"{name} is an offset, 'earliest', 'latest', -N (N before the end) or @time, not {text[:80]!r}", field=name
    )


def _time_ms(text: str, name: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text) and int(text) <= TIMESTAMP_MS_MAX:
        return int(text)
    try:
        return parse_iso_ms(text)
    except ValueError as error:
        raise Unreadable(
            f"@time is milliseconds since 1970 or ISO 8601 with a zone (as @2026-01-31T12:00:00Z): {error}", field=name
        ) from error


def parse_iso_ms(text: str) -> int:
    """ISO 8601 with a zone, to ms since 1970. `ValueError` says what is wrong with it."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text[:40]!r} has no zone: add Z or an offset as +01:00")
    since = moment - _EPOCH
    time_ms = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if not 0 <= time_ms <= TIMESTAMP_MS_MAX:
        raise ValueError(f"{text[:40]!r} lies outside the years 1970 to 9999")
    return time_ms
