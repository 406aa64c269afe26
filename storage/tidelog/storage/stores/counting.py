"""Count what is asked of a store, and what it would cost.

Every call that reaches `inner` is one request, whether it succeeds or not; put this wrapper inside the retrying one and
each try is counted, as the bill does. Requests are kept by verb and by `Purpose`: what the key is for, and whose topic
it is. `usage` gives a frozen value that can be summed, subtracted and priced:

    before = store.usage()
    ...
    spent = store.usage() - before
    spent.requests(Verb.CREATE), spent.usd(S3_STANDARD)
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from tidelog.storage.layout import META_PREFIX, TOPICS_PREFIX, WAL_PREFIX
from tidelog.storage.object_store import LIST_PAGE_MAX, Body, ByteRange, ObjectInfo, ObjectStore, StoredObject

T = TypeVar("T")

PURPOSES_MAX = 20_000
"""So many purposes are told apart; what comes later counts as `OTHER`, so that memory stays bounded."""


class Verb(Enum):
    GET = "get"
    PUT = "put"
    CREATE = "create"
    DELETE = "delete"
    LIST = "list"
    HEAD = "head"


class Kind(Enum):
    """The part of the bucket that a key lies in."""

    WAL = "wal"
    SEGMENT = "segment"
    MANIFEST = "manifest"
    META = "meta"
    OTHER = "other"


@dataclass(frozen=True)
class Purpose:
    """What a request was for. `topic` is None where the object is not one topic's, as a WAL entry is not."""

    kind: Kind
    topic: str | None = None


OTHER = Purpose(Kind.OTHER)


@dataclass(frozen=True)
class PriceTable:
    """US dollars a request, by verb, and for what lies there: `stored_gb_month_usd` for 2^30 bytes and a month."""

    put_usd: float
    get_usd: float
    list_usd: float
    head_usd: float
    delete_usd: float = 0.0
    stored_gb_month_usd: float = 0.0
    name: str = ""

    def usd(self, verb: Verb) -> float:
        """The price of one request."""
        prices = {Verb.GET: self.get_usd, Verb.LIST: self.list_usd, Verb.HEAD: self.head_usd}
        return self.delete_usd if verb is Verb.DELETE else prices.get(verb, self.put_usd)

    def stored_month_usd(self, size_bytes: float) -> float:
        """The price of `size_bytes` for a month."""
        return self.stored_gb_month_usd * size_bytes / BILLED_GB_BYTES


BILLED_GB_BYTES = 1 << 30
"""What a price list calls a gigabyte of storage."""

S3_STANDARD = PriceTable(
    put_usd=0.005 / 1_000,
    get_usd=0.0004 / 1_000,
    list_usd=0.005 / 1_000,
    head_usd=0.0004 / 1_000,
    stored_gb_month_usd=0.023,
    name="S3 Standard, us-east-1",
)
"""S3 Standard's list prices in us-east-1 as of November 2026: 0.005 USD per 1,000 PUT, COPY, POST or LIST requests,
0.0004 USD per 1,000 GET and all other requests, DELETE free, 0.023 USD per GB and month for the first 50 TB
(https://aws.amazon.com/s3/pricing/). Traffic out of the region is not in it; within it there is none to pay."""

FREE = PriceTable(put_usd=0.0, get_usd=0.0, list_usd=0.0, head_usd=0.0, name="a store without prices")
"""A local directory or memory."""


@dataclass(frozen=True)
class RequestCounts:
    """How often each was asked, creates among the puts. Not whole numbers: a request that several topics shared is
    divided up."""

    puts: float = 0.0
    gets: float = 0.0
    lists: float = 0.0
    heads: float = 0.0
    deletes: float = 0.0

    def __add__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(
            self.puts + other.puts,
            self.gets + other.gets,
            self.lists + other.lists,
            self.heads + other.heads,
            self.deletes + other.deletes,
        )

    def times(self, factor: float) -> RequestCounts:
        """A part of them, or a multiple."""
        return RequestCounts(
            self.puts * factor, self.gets * factor, self.lists * factor, self.heads * factor, self.deletes * factor
        )

    def usd(self, prices: PriceTable) -> float:
        """What they cost."""
        return (
            self.puts * prices.put_usd
            + self.gets * prices.get_usd
            + self.lists * prices.list_usd
            + self.heads * prices.head_usd
            + self.deletes * prices.delete_usd
        )


NO_REQUESTS = RequestCounts()


@dataclass(frozen=True)
class Tally:
    """What one purpose asked by one verb; bytes are those of bodies, failures are counted in `requests` too."""

    requests: int = 0
    failures: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.requests + other.requests,
            self.failures + other.failures,
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
        )

    def __sub__(self, other: Tally) -> Tally:
        return self + Tally(-other.requests, -other.failures, -other.sent_bytes, -other.received_bytes)


@dataclass(frozen=True)
class Usage:
    """All that was counted until a moment."""

    tallies: Mapping[tuple[Purpose, Verb], Tally] = field(default_factory=dict)

    def __sub__(self, earlier: Usage) -> Usage:
        return Usage({key: tally - earlier.tallies.get(key, Tally()) for key, tally in self.tallies.items()})

    def total(self, verb: Verb | None = None, *, kind: Kind | None = None, topic: str | None = None) -> Tally:
        """The sum over all, or over those of a verb, a kind, a topic."""
        chosen = Tally()
        for (purpose, asked), tally in self.tallies.items():
            if verb in (None, asked) and kind in (None, purpose.kind) and topic in (None, purpose.topic):
                chosen += tally
        return chosen

    def requests(self, verb: Verb | None = None, *, kind: Kind | None = None, topic: str | None = None) -> int:
        """How many requests, of all or of those chosen."""
        return self.total(verb, kind=kind, topic=topic).requests

    def counts(self, *, kind: Kind | None = None, topic: str | None = None) -> RequestCounts:
        """The requests of all, or of those chosen."""
        asked = {verb: self.requests(verb, kind=kind, topic=topic) for verb in Verb}
        puts = asked[Verb.PUT] + asked[Verb.CREATE]
        return RequestCounts(puts, asked[Verb.GET], asked[Verb.LIST], asked[Verb.HEAD], asked[Verb.DELETE])

    def usd(self, prices: PriceTable, *, kind: Kind | None = None, topic: str | None = None) -> float:
        """What the requests cost by `prices`."""
        return self.counts(kind=kind, topic=topic).usd(prices)


class CountingObjectStore:
    """`inner`, counted."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._tallies: dict[tuple[Purpose, Verb], Tally] = {}

    def usage(self) -> Usage:
        """What was counted so far. Requests under way are in it once they end."""
        return Usage(dict(self._tallies))

    @property
    def inner(self) -> ObjectStore:
        return self._inner

    @property
    def url(self) -> str:
        return self._inner.url

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        stored = await self._counted(Verb.GET, key, self._inner.get(key, byte_range))
        self._add(Verb.GET, key, Tally(received_bytes=len(stored.data)))
        return stored

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        writing = self._inner.put(key, data, if_version=if_version)
        return await self._counted(Verb.PUT, key, writing, sent_bytes=_size(data))

    async def create(self, key: str, data: Body) -> str:
        return await self._counted(Verb.CREATE, key, self._inner.create(key, data), sent_bytes=_size(data))

    async def delete(self, key: str) -> None:
        await self._counted(Verb.DELETE, key, self._inner.delete(key))

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        return await self._counted(Verb.LIST, prefix, self._inner.list(prefix, start_after=start_after, limit=limit))

    async def head(self, key: str) -> ObjectInfo:
        return await self._counted(Verb.HEAD, key, self._inner.head(key))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _counted(self, verb: Verb, key: str, call: Awaitable[T], *, sent_bytes: int = 0) -> T:
        failures = 1
        try:
            answer = await call
            failures = 0
        finally:
            self._add(verb, key, Tally(requests=1, failures=failures, sent_bytes=sent_bytes))
        return answer

    def _add(self, verb: Verb, key: str, tally: Tally) -> None:
        known = len(self._tallies) < PURPOSES_MAX or (purpose_of(key), verb) in self._tallies
        slot = (purpose_of(key) if known else OTHER, verb)
        self._tallies[slot] = self._tallies.get(slot, Tally()) + tally


def purpose_of(key: str) -> Purpose:
    """What `key`, or a listing's prefix, is for (the forms stand in `layout`)."""
    if key.startswith(WAL_PREFIX):
        return Purpose(Kind.WAL)
    if key.startswith(META_PREFIX):
        return Purpose(Kind.META)
    if not key.startswith(TOPICS_PREFIX):
        return OTHER
    topic, _, rest = key.removeprefix(TOPICS_PREFIX).partition("/")
    return Purpose(Kind.MANIFEST if "/_manifest/" in rest else Kind.SEGMENT, topic or None)


def _size(data: Body) -> int:
    return memoryview(data).nbytes
