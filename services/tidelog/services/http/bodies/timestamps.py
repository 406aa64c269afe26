"""Timestamps of records: ms since 1970 UTC, up to the end of the year 9999."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidelog.storage.records import TIMESTAMP_MS_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_iso_ms(text: str) -> int:
    """Convert ISO 8601 with a zone to ms since 1970. Raises `ValueError`, which says what is wrong."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text[:40]!r} has no zone: add Z or an offset such as +01:00")
    time_ms = (time - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= time_ms <= TIMESTAMP_MS_MAX:
        raise ValueError(f"{text[:40]!r} is not in the years 1970 to 9999")
    return time_ms
