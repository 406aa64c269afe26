"""What the demo shows of the bucket: the objects in it by kind, and what its requests would have cost on S3."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tidelog.client import Admin
from tidelog.client.prices import S3_STANDARD
from tidelog.storage.object_store import ObjectInfo, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import NO_REQUESTS, RequestCounts
from tidelog.storage.stores.opening import open_store

KINDS = (
    ("write-ahead log entries", "wal/", ".parquet"),
    ("cold segments", "topics/", ".parquet"),
    ("manifests", "manifests/", ".json"),
    ("journal of topics", "meta/", ".json"),
    ("other", "", ""),
)


@dataclass(frozen=True)
class Kind:
    """All objects of one kind. `example` is the key of the last one."""

    name: str
    objects: int
    size_bytes: int
    example: str


@dataclass(frozen=True)
class Bill:
    """Requests of one or several brokers. Bills can be added."""

    requests: RequestCounts = NO_REQUESTS

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.requests + other.requests)

    @property
    def usd(self) -> float:
        """The price of the requests at S3 Standard's list prices, without storage and traffic."""
        return S3_STANDARD.requests_usd(self.requests)

    def rows(self) -> list[tuple[str, int, str]]:
        """Verb, requests, dollars; most requests first."""
        asked = sorted(asdict(self.requests).items(), key=lambda item: -item[1])
        priced = ((verb, count, S3_STANDARD.requests_usd(RequestCounts(**{verb: count}))) for verb, count in asked)
        return [(verb, round(count), f"${usd:.6f}") for verb, count, usd in priced if count]


def bill_of(admin: Admin) -> Bill:
    """The requests of the broker since it started."""
    return Bill(admin.cluster_cost().total.requests)


async def kinds_in(store_url: str) -> list[Kind]:
    """The kinds of objects in the store."""
    store = open_store(store_url, runtime=Runtime())
    try:
        return kinds_of([info async for info in list_all(store, "")])
    finally:
        await store.aclose()


def kinds_of(objects: Iterable[ObjectInfo]) -> list[Kind]:
    """The objects by kind, in the order of `KINDS`."""
    found: dict[str, list[ObjectInfo]] = {name: [] for name, _, _ in KINDS}
    for info in objects:
        kind = next(n for n, prefix, suffix in KINDS if info.key.startswith(prefix) and info.key.endswith(suffix))
        found[kind].append(info)
    return [
        Kind(name, len(infos), sum(info.size for info in infos), max(_shortened(info.key) for info in infos))
        for name, infos in found.items()
        if infos
    ]


def _shortened(key: str) -> str:
    """`key` with ids cut to six digits and without leading zeros."""
    without_zeros = re.sub(r"0{6,}(?=\d)", "…", key)
    return re.sub(r"[0-9a-f]{32}", lambda found: found.group()[:6] + "~", without_zeros)
