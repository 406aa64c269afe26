"""The bucket as the demo shows it: what kinds of objects there are, how many and how large."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = (
    ("write-ahead log entries", "wal/", ".parquet"),
    ("floors of the logs", "wal/", "_floor"),
    ("cold segments", "topics/", ".parquet"),
    ("manifest versions", "topics/", ".json"),
    ("journal of topics", "meta/", ".json"),
)


@dataclass(frozen=True)
class StoredObject:
    """A key and its size."""

    key: str
    size_bytes: int


@dataclass(frozen=True)
class Kind:
    """All objects of one kind; `example` is the key of its last one."""

    name: str
    objects: int
    size_bytes: int
    example: str


def kinds_of(objects: Sequence[StoredObject]) -> list[Kind]:
    """The objects by kind, in the order of the namespace; a key of no known kind is counted as `other`."""
    found = []
    rest = list(objects)
    for name, prefix, suffix in KINDS:
        mine = [item for item in rest if item.key.startswith(prefix) and item.key.endswith(suffix)]
        rest = [item for item in rest if item not in mine]
        found.append(_kind(name, mine))
    found.append(_kind("other", rest))
    return [kind for kind in found if kind.objects]


def _shortened(key: str) -> str:
    """The key as people read it: long ids cut to six digits, leading zeros left out."""
    without_zeros = re.sub(r"0{6,}(?=\d)", "…", key)
    return re.sub(r"[0-9a-f]{32}", lambda found: found.group()[:6] + "~", without_zeros)


def _kind(name: str, objects: Sequence[StoredObject]) -> Kind:
    last = max((_shortened(item.key) for item in objects), default="")
    return Kind(name, len(objects), sum(item.size_bytes for item in objects), last)
