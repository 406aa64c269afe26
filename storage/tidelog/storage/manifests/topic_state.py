"""A topic in a shard's manifest: its segments and the states of its partitions.

A version of the manifest stores, for each topic, the differences to the topic's **list**: an object that never changes
and holds all segments and states of a moment. A version can be applied and stored without the lists of the topics that
it does not change, so `TopicState.base` may be absent. `topic_lists` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from tidelog.storage.manifests.json_envelope import Natural
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


@dataclass(frozen=True)
class TopicBase:
    """The content of a list."""

    columns: SegmentColumns = NO_COLUMNS
    partitions: Mapping[int, ColdState] = field(default_factory=dict)


NO_BASE = TopicBase()


@dataclass(frozen=True)
class TopicState:
    """`name`: the topic's. `stored`: its list, None if it has none yet. `base`: the content of that list, None if it
    was not read. `removed`: places of segments in the list; `added`: segments, in the order of their place;
    `partitions`: states that differ from the list's. `next_run`: the number of the next run. `totals`: of all
    segments."""

    name: str
    next_run: int = 0
    stored: ListRef | None = None
    base: TopicBase | None = NO_BASE
    removed: frozenset[int] = frozenset()
    added: tuple[TopicSegment, ...] = ()
    partitions: Mapping[int, ColdState] = field(default_factory=dict)
    totals: Totals = NOTHING

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

    @cached_property
    def differences(self) -> int:
        """How much a version has to store beside the list: spans of segments, states, and places. A segment itself
        counts as `SEGMENT_SPANS`."""
        added = sum(SEGMENT_SPANS + len(segment.spans) for segment in self.added)
        return len(self.removed) + added + len(self.partitions)

    @property
    def size(self) -> int:
        """How much the list stores, as `differences` counts; needs `base`."""
        columns = self._base.columns
        return SEGMENT_SPANS * len(columns) + len(columns.partition) + len(self._base.partitions)

    def changed_since(self, known: TopicState | None) -> bool:
        """Whether a version changed the topic since it was `known`. Lists that were read or not make no difference."""
        return known is None or (known is not self and known._facts != self._facts)

    def with_segments(self, segments: SegmentList) -> TopicState:
        """The same topic with `segments`, which were made of this state's."""
        return replace(self, removed=segments.removed, added=segments.added)

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
        assert self.base is not None, "the topic's list was read"
        return self.base
