"""Counts the requests to a store by verb and by purpose: which part of the bucket, and which topic.

Every call that reaches the inner store is one request, whether it succeeds or not. Put this wrapper inside the retrying
one, and it counts each try, as the store's bill does. `usage` gives a frozen value that can be summed and subtracted:

    before = store.usage()
    ...
    spent = store.usage() - before
    spent.requests(Verb.CREATE), spent.counts(topic="web")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from tidelog.storage.layout import GROUPS_PREFIX, MANIFESTS_PREFIX, META_PREFIX, TOPICS_PREFIX, WAL_PREFIX
from tidelog.storage.object_store import ObjectStore, StoredObject
from tidelog.storage.stores.wrapping import Attempt, Request, Verb, WrappingObjectStore

T = TypeVar("T")

PURPOSES_MAX = 20_000
"""The number of purposes that are counted apart. Later ones count as `OTHER`, so that memory stays bounded."""


class Kind(Enum):
    """The part of the bucket that a key lies in."""

    WAL = "wal"
    SEGMENT = "segment"
    MANIFEST = "manifest"
    META = "meta"
    GROUPS = "groups"
    OTHER = "other"


@dataclass(frozen=True)
class Purpose:
    """The kind of object that a request was for, and its topic. `topic` is None where several topics share the object,
    as in a WAL entry or a shard's manifest."""

    kind: Kind
    topic: str | None = None


OTHER = Purpose(Kind.OTHER)


@dataclass(frozen=True)
class RequestCounts:
    """Requests by verb, creates among the puts. A delete of up to 1,000 objects by one request is one delete. Fractions
    occur: a request that several topics share is divided."""

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
        """A fraction or a multiple of them."""
        return RequestCounts(
            self.puts * factor, self.gets * factor, self.lists * factor, self.heads * factor, self.deletes * factor
        )


NO_REQUESTS = RequestCounts()


@dataclass(frozen=True)
class Tally:
    """The requests of one purpose and verb. `failures` are among `requests`; bytes are those of object bodies."""

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
    """All that was counted up to one moment."""

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
        """The number of requests; chosen as in `total`."""
        return self.total(verb, kind=kind, topic=topic).requests

    def counts(self, *, kind: Kind | None = None, topic: str | None = None) -> RequestCounts:
        """The requests by verb; chosen as in `total`."""
        asked = {verb: self.requests(verb, kind=kind, topic=topic) for verb in Verb}
        puts = asked[Verb.PUT] + asked[Verb.CREATE]
        return RequestCounts(puts, asked[Verb.GET], asked[Verb.LIST], asked[Verb.HEAD], asked[Verb.DELETE])


class CountingObjectStore(WrappingObjectStore):
    """Counts every request that it sends to `inner`."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._tallies: dict[tuple[Purpose, Verb], Tally] = {}

    def usage(self) -> Usage:
        """The requests that have ended so far."""
        return Usage(dict(self._tallies))

    async def _send(self, request: Request, attempt: Attempt[T], /) -> T:
        failures, received_bytes = 1, 0
        try:
            answer = await attempt()
            failures = 0
            if isinstance(answer, StoredObject):
                received_bytes = len(answer.data)
            return answer
        finally:
            self._add(request, Tally(1, failures, request.sent_bytes, received_bytes))

    def _add(self, request: Request, tally: Tally) -> None:
        purpose = purpose_of(request.key)
        known = len(self._tallies) < PURPOSES_MAX or (purpose, request.verb) in self._tallies
        slot = (purpose if known else OTHER, request.verb)
        self._tallies[slot] = self._tallies.get(slot, Tally()) + tally


def purpose_of(key: str) -> Purpose:
    """The purpose of a request for `key`, or for a listing's prefix (the forms stand in `layout`)."""
    if key.startswith(WAL_PREFIX):
        return Purpose(Kind.WAL)
    if key.startswith(META_PREFIX):
        return Purpose(Kind.META)
    if key.startswith(GROUPS_PREFIX):
        return Purpose(Kind.GROUPS)
    if key.startswith(MANIFESTS_PREFIX):
        return Purpose(Kind.MANIFEST)
    if not key.startswith(TOPICS_PREFIX):
        return OTHER
    return Purpose(Kind.SEGMENT, key.removeprefix(TOPICS_PREFIX).partition("/")[0] or None)
