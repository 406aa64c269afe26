"""Reads path and query parameters strictly: an unknown name, a repeated name or a number out of range is refused before
any work is done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from starlette.requests import Request

from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.errors import NotFound
from tidelog.wire.errors import Unreadable

NO_QUERY: frozenset[str] = frozenset()
"""The parameters of a call that has none."""
OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1
SHARD_MAX = 2**31 - 1
PARTITIONS_NAMED_MAX = 100_000
_PARTITION_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


def query_of(request: Request, known: frozenset[str]) -> Mapping[str, str]:
    """The parameters of the query. Raises `Unreadable` for a name that is not in `known`, or one that occurs twice."""
    raw: bytes = request.scope["query_string"]
    if not raw:
        return {}
    found: dict[str, str] = {}
    for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise Unreadable(
                f"{name[:80]!r} is not a parameter of this call; its parameters are: {names}", field=name[:80]
            )
        if name in found:
            raise Unreadable(f"{name} occurs twice: send it once", field=name)
        found[name] = value
    return found


def whole_number(text: str, name: str, low: int, high: int) -> int:
    """Parse a number in ``[low, high]``. Raises `Unreadable`, which names the parameter."""
    if _WHOLE_NUMBER.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise Unreadable(f"{name} must be a whole number from {low} to {high}, not {text[:80]!r}", field=name)


def optional_number(query: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    return whole_number(query[name], name, low, high) if name in query else None


def capped_number(query: Mapping[str, str], name: str, low: int, default: int, cap: int) -> int:
    """A limit that the client may lower or raise, up to `cap`."""
    given = optional_number(query, name, low, OFFSET_MAX)
    return min(default if given is None else given, cap)


def flag(query: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse ``true`` or ``false``. Raises `Unreadable`, which names the parameter."""
    match query.get(name):
        case None:
            return default
        case "true" | "false" as text:
            return text == "true"
        case other:
            raise Unreadable(f"{name} must be true or false, not {other[:80]!r}", field=name)


def parse_partitions(text: str) -> list[int]:
    """Parse a list such as ``0-3,7`` into sorted partitions, at least one. Raises `Unreadable`."""
    found: set[int] = set()
    for item in text.split(","):
        ends = _PARTITION_RANGE.fullmatch(item)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not first <= last < first + PARTITIONS_NAMED_MAX:
            raise Unreadable(f"partitions must be a list such as 0-3,7, not {text[:80]!r}", field="partitions")
        found.update(range(first, last + 1))
        if len(found) > PARTITIONS_NAMED_MAX:
            raise Unreadable(f"partitions names more than {PARTITIONS_NAMED_MAX} partitions", field="partitions")
    return sorted(found)


def chosen_partitions(query: Mapping[str, str], topic: Topic) -> Sequence[int]:
    """The partitions in the parameter ``partitions``; without it, all that the topic has. Raises `Unreadable`,
    `NotFound`."""
    if "partitions" not in query:
        return range(topic.partition_count)
    chosen = parse_partitions(query["partitions"])
    if chosen[-1] >= topic.partition_count:
        known = f"its partitions are 0 to {topic.partition_count - 1}"
        raise NotFound(f"{topic.name} has no partition {chosen[-1]}: {known}")
    return chosen


def topic_of(request: Request) -> str:
    name: str = request.path_params["topic"]
    return name


def partition_of(request: Request) -> int:
    return whole_number(request.path_params["partition"], "partition", 0, PARTITION_MAX)
