"""Path and query parameters, read strictly: an unknown name, a name said twice or a number out of its range is refused
before anything happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request

from tidelog.services.http.answers.problems import Unreadable

OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1
PARTITIONS_NAMED_MAX = 100_000
_PARTITION_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


def query_of(request: Request, known: frozenset[str]) -> Mapping[str, str]:
    """The query's parameters. `Unreadable` for a name not in `known`, or one given twice."""
    raw: bytes = request.scope["query_string"]
    if not raw:
        return {}
    found: dict[str, str] = {}
    for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise Unreadable(f"{name[:80]!r} is not a parameter of this call; the known are: {names}", field=name[:80])
        if name in found:
            raise Unreadable(f"{name} is given twice: say it once", field=name)
        found[name] = value
    return found


def whole_number(text: str, name: str, low: int, high: int) -> int:
    """`text` as a number in ``[low, high]``, else `Unreadable` naming the parameter."""
    if _WHOLE_NUMBER.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise Unreadable(f"{name} is a whole number from {low} to {high}, not {text[:80]!r}", field=name)


def optional_number(query: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    return whole_number(query[name], name, low, high) if name in query else None


def capped_number(query: Mapping[str, str], name: str, low: int, default: int, cap: int) -> int:
    """A limit that the client may ask for and the broker caps at `cap`."""
    wanted = optional_number(query, name, low, OFFSET_MAX)
    return min(default if wanted is None else wanted, cap)


def flag(query: Mapping[str, str], name: str, *, default: bool) -> bool:
    """``true`` or ``false``, else `Unreadable` naming the parameter."""
    match query.get(name):
        case None:
            return default
        case "true" | "false" as text:
            return text == "true"
        case other:
            raise Unreadable(f"{name} is true or false, not {other[:80]!r}", field=name)


def parse_partitions(text: str) -> list[int]:
    """``0-3,7`` as partitions in their order; at least one. `Unreadable` for another form, or too many."""
    found: set[int] = set()
    for item in text.split(","):
        ends = _PARTITION_RANGE.fullmatch(item)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not first <= last < first + PARTITIONS_NAMED_MAX:
            raise Unreadable(f"partitions is a list as 0-3,7, not {text[:80]!r}", field="partitions")
        found.update(range(first, last + 1))
        if len(found) > PARTITIONS_NAMED_MAX:
            raise Unreadable(f"partitions names more than {PARTITIONS_NAMED_MAX}", field="partitions")
    return sorted(found)


def topic_of(request: Request) -> str:
    name: str = request.path_params["topic"]
    return name


def partition_of(request: Request) -> int:
    return whole_number(request.path_params["partition"], "partition", 0, PARTITION_MAX)
