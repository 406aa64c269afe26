"""A topic in a shard's manifest: its segments and the states of its partitions.

A version of the manifest stores, for each topic, the differences to the topic's **list**: an object that never changes
and holds all segments and states of a moment. A version can be applied and stored without the lists of the topics that
it does not change, so `TopicState.base` may be absent. `topic_lists` reads it.

    manifests/0003/lists/<topic_id>-<id>.json      JSON with a checksum (`json_envelope`)

A list is columns, because a hundred thousand segments are read in some hundred milliseconds and never become objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from tidelog.storage.errors import Corrupt
from tidelog.storage.formats import SEGMENT_LIST
from tidelog.storage.manifests.json_envelope import Natural, SealedJson
from tidelog.storage.manifests.segment_columns import NO_COLUMNS, SegmentColumns
from tidelog.storage.manifests.segment_list import SegmentList
from tidelog.storage.manifests.shard_values import EMPTY, ColdState, TopicSegment

SEGMENT_SPANS = 6
"""A segment takes as many stored bytes as this many spans, because its id and its hash do not compress."""


class ListRef(msgspec.Struct, frozen=True, array_like=True):
    """The object of a topic's list, the sha256 of its bytes, and how many segments it has."""

    key: str
    sha256: str
    size_bytes: Natural
    segments: Natural


class Totals(msgspec.Struct, frozen=True, array_like=True):
    """Sums over the segments of a topic, which need no list. `raw_bytes`: keys and values, uncompressed."""

    segments: Natural = 0
    records: Natural = 0
    size_bytes: Natural = 0
    raw_bytes: Natural = 0

    def after(self, removed: Iterable[TopicSegment], added: Iterable[TopicSegment]) -> Totals:
        """The sums after a change."""
        changes = [*((-1, each) for each in removed), *((1, each) for each in added)]
        return Totals(
            self.segments + sum(sign for sign, _ in changes),
            self.records + sum(sign * each.records for sign, each in changes),
            self.size_bytes + sum(sign * each.size_bytes for sign, each in changes),
            self.raw_bytes + sum(sign * each.raw_bytes for sign, each in changes),
        )


NOTHING = Totals()


class TopicBase(msgspec.Struct, frozen=True):
    """The content of a list."""

    columns: SegmentColumns = NO_COLUMNS
    partitions: Mapping[int, ColdState] = {}


NO_BASE = TopicBase()


class TopicState(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """`name`: the topic's. `stored`: its list, None if it has none yet. `base`: the content of that list if it was
    read; a version is stored without it. `removed`: places of segments in the list; `added`: segments, in the order of
    their place; `partitions`: states that differ from the list's. `next_run`: the number of the next run. `totals`: of
    all segments."""

    name: str
    next_run: Natural = 0
    stored: ListRef | None = None
    base: TopicBase | None = None
    removed: frozenset[Natural] = frozenset()
    added: SegmentColumns = NO_COLUMNS
    partitions: Mapping[int, ColdState] = {}
    totals: Totals = NOTHING

    @property
    def list_key(self) -> str:
        """The key of its list; empty if it has none."""
        return self.stored.key if self.stored else ""

    @property
    def lacks_list(self) -> bool:
        """Whether its list has to be read (`ShardLog.with_lists`)."""
        return self.stored is not None and self.base is None

    @cached_property
    def segments(self) -> SegmentList:
        """All segments; needs `base`."""
        return SegmentList(self._base.columns, self.removed, self.added)

    def partition(self, number: int) -> ColdState:
        """The state of a partition; needs `base`."""
        return self.partitions.get(number) or self._base.partitions.get(number, EMPTY)

    @property
    def all_partitions(self) -> Mapping[int, ColdState]:
        """The states of all partitions that have one; needs `base`."""
        return {**self._base.partitions, **self.partitions}

    @property
    def differences(self) -> int:
        """How much a version has to store beside the list: spans of segments, states, and places. A segment itself
        counts as `SEGMENT_SPANS`."""
        return len(self.removed) + _spans_of(self.added) + len(self.partitions)

    @property
    def size(self) -> int:
        """How much the list stores, as `differences` counts; needs `base`."""
        return _spans_of(self._base.columns) + len(self._base.partitions)

    def changed_since(self, known: TopicState | None) -> bool:
        """Whether a version changed the topic since it was `known`. Lists that were read or not make no difference."""
        return known is None or (known is not self and known._facts != self._facts)

    def consolidated(self) -> TopicBase:
        """The content of a list that makes the differences unnecessary; needs `base`."""
        return TopicBase(self.segments.columns, self.all_partitions)

    def listed(self, stored: ListRef, base: TopicBase) -> TopicState:
        """The same topic with `base` as its list, and no differences."""
        return TopicState(self.name, self.next_run, stored, base, totals=self.totals)

    @property
    def _facts(self) -> tuple[object, ...]:
        return self.stored, self.next_run, self.removed, self.added, self.partitions

    @property
    def _base(self) -> TopicBase:
        assert not self.lacks_list, "the topic's list was read"
        return self.base or NO_BASE


def _spans_of(columns: SegmentColumns) -> int:
    return SEGMENT_SPANS * len(columns) + len(columns.partition)


class _List(msgspec.Struct):
    topic: str
    topic_id: str
    shard: Natural
    content: TopicBase


_form = SealedJson(_List, SEGMENT_LIST, "is no list of segments")


def encode_list(key: str, topic: str, topic_id: str, shard: int, base: TopicBase) -> tuple[ListRef, bytes]:
    """`base` as the object `key`. Takes a second for some hundred thousand segments: on an event loop, call it in a
    thread."""
    body = _form.encode(_List(topic, topic_id, shard, base))
    return ListRef(key, hashlib.sha256(body).hexdigest(), len(body), len(base.columns)), body


def decode_list(stored: ListRef, topic: str, topic_id: str, shard: int, data: bytes) -> TopicBase:
    """The content of the list that a version names. Raises `Corrupt` if `data` is another object or damaged."""
    if hashlib.sha256(data).hexdigest() != stored.sha256:
        raise Corrupt(stored.key, "is not the list that its manifest names: another sha256")
    found = _form.decode(stored.key, data)
    if (found.topic, found.topic_id, found.shard) != (topic, topic_id, shard):
        raise Corrupt(stored.key, f"is the list of topic {found.topic} in shard {found.shard}")
    if len(found.content.columns) != stored.segments:
        raise Corrupt(stored.key, f"has {len(found.content.columns)} segments, its manifest says {stored.segments}")
    if fault := found.content.columns.fault():
        raise Corrupt(stored.key, fault)
    return found.content


def cold_ends_in(key: str, data: bytes) -> Mapping[int, int]:
    """The cold end of each partition in a list that no version names. Raises `Corrupt`."""
    return {number: state.cold_end for number, state in _form.decode(key, data).content.partitions.items()}
