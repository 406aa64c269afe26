"""Reads the text of single options. A wrong text raises `Invalid`, with the option in `field`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TypeVar

import msgspec

from tidelog.storage.errors import Invalid

DEFAULT_BROKER = "http://127.0.0.1:8080"
SHOWN_CHARS_MAX = 80

T = TypeVar("T")

_TIME_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
"""The units of Spark's own settings."""


def by_known_name(given: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """The options by the spelling in `known`; users may write any case, as everywhere in Spark."""
    spelling = {name.lower(): name for name in known}
    unknown = sorted(name for name in given if name.lower() not in spelling)
    if unknown:
        raise Invalid(
            f"unknown option of the tidelog source: {', '.join(unknown)}{_advice(unknown, spelling)}; "
            f"it has {', '.join(spelling.values())}",
            field=unknown[0],
        )
    return {spelling[name.lower()]: str(value).strip() for name, value in given.items()}


def _advice(unknown: Iterable[str], spelling: Mapping[str, str]) -> str:
    if any("bootstrap" in name.lower() for name in unknown):
        return " (the broker's address goes into 'broker')"
    near = {found[0]: None for name in unknown if (found := get_close_matches(name.lower(), spelling, n=1))}
    return f" (did you mean {' and '.join(spelling[name] for name in near)}?)" if near else ""


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise Invalid(f"{name} is true or false, not {text[:SHOWN_CHARS_MAX]!r}", field=name)
    return text == "true"


def positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) == 0:
        raise Invalid(f"{name} is a whole number above 0, not {text[:SHOWN_CHARS_MAX]!r}", field=name)
    return int(text)


def milliseconds_since_1970(options: Mapping[str, str], name: str) -> int:
    text = options[name]
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Invalid(f"{name} is milliseconds since 1970-01-01 UTC, not {text[:SHOWN_CHARS_MAX]!r}", field=name)
    return int(text)


def duration_ms(options: Mapping[str, str], name: str, *, default: str) -> int:
    """A number of milliseconds, or one with a unit, such as 30s."""
    text = options.get(name, default)
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.lower())
    if not found or found[2] not in _TIME_UNITS_MS:
        shown = text[:SHOWN_CHARS_MAX]
        raise Invalid(f"{name} is a time such as 30s, 15m or 500ms, not {shown!r}", field=name)
    return int(found[1]) * _TIME_UNITS_MS[found[2]]


def byte_count(options: Mapping[str, str], name: str) -> int | None:
    """A number of bytes, or one with a unit, such as 64m."""
    text = options.get(name)
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.lower())
    if not found or found[2] not in _BYTE_UNITS or int(found[1]) == 0:
        raise Invalid(f"{name} is a size such as 64m or 1g, not {text[:SHOWN_CHARS_MAX]!r}", field=name)
    return int(found[1]) * _BYTE_UNITS[found[2]]


def members_of_json(text: str, shape: type[T], form: str, option: str) -> Iterator[tuple[str, T]]:
    """The members of a JSON object, each as a `shape`. `form` describes the option; the error adds the topic that does
    not fit."""
    try:
        topics = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Invalid(f"{form}; {text[:SHOWN_CHARS_MAX]!r} does not parse: {error}", field=option) from None
    for topic, raw in topics.items():
        try:
            yield topic, msgspec.json.decode(raw, type=shape)
        except msgspec.MsgspecError:
            shown = bytes(raw)[:SHOWN_CHARS_MAX].decode(errors="replace")
            raise Invalid(f"{form}; {topic!r} has {shown}", field=option) from None


def broker_url(options: Mapping[str, str]) -> str:
    url = options.get("broker", DEFAULT_BROKER)
    if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url):
        raise Invalid(f"broker is a URL such as {DEFAULT_BROKER}, not {url[:200]!r}", field="broker")
    return url.rstrip("/")
