"""Rules that the segments of a topic in a shard must keep so that they form the log of each partition (inv. 4, 5),
beyond those of the codecs. Pure.

Columns are compared as a whole; Python looks only at the spans that break a rule at first sight. So a topic of a
hundred thousand segments is checked in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tidelog.storage.manifests.json_envelope import Ints
from tidelog.storage.manifests.losses import losses_fault, lost_between, not_lost
from tidelog.storage.manifests.segment_columns import SegmentColumns
from tidelog.storage.manifests.shard_values import ColdState
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL

FAULTS_MAX = 100
"""Of one kind and topic; the first ones tell enough."""


class Fault(NamedTuple):
    """`segment`: the key of the segment that breaks the rule; None for the manifest as a whole."""

    segment: str | None
    text: str


def topic_faults(topic: TopicState) -> Iterator[Fault]:
    """Everything that is wrong with the topic, whose list was read."""
    yield from _segment_faults(topic)
    spans = _SortedSpans(topic.segments.columns)
    states = topic.all_partitions
    for number in sorted({*states, *np.unique(spans.partition).tolist()}):
        yield from (Fault(None, text) for text in _state_faults(number, states.get(number, ColdState())))
    yield from spans.order_faults()
    yield from spans.count_faults(states)
    yield from spans.density_faults(states)


def _segment_faults(topic: TopicState) -> Iterator[Fault]:
    columns = topic.segments.columns
    if len(columns.position) < len(columns):
        yield Fault(None, f"lists {len(columns) - len(columns.position)} segments twice")
    for at in _first(columns.level > FINAL_LEVEL):
        yield Fault(columns.keys[at], f"is of level {columns.level[at]}; the highest is {FINAL_LEVEL}")
    for at in _first(columns.run >= topic.next_run):
        yield Fault(columns.keys[at], f"is of run {columns.run[at]}, and the next run is {topic.next_run}")
    same = columns.segment_of_span[1:] == columns.segment_of_span[:-1]
    for at in _first(same & (np.diff(columns.partition) <= 0)):
        yield Fault(columns.keys[columns.segment_of_span[at]], "has spans that are not ascending by partition")


def _state_faults(number: int, state: ColdState) -> Iterator[str]:
    if not state.log_start_offset <= state.cold_end:
        yield f"has partition {number} begin at {state.log_start_offset}, after its cold end {state.cold_end}"
    if fault := losses_fault(state.losses):
        yield f"{fault}, in partition {number}"


@dataclass
class _SortedSpans:
    """The spans of a topic by partition and offset. `follows`: whether the span after each is of the same partition."""

    columns: SegmentColumns
    partition: Ints = field(init=False)

    def __post_init__(self) -> None:
        columns, order = self.columns, self.columns.by_partition
        self.partition = columns.partition[order]
        self.base, self.last = columns.base_offset[order], columns.last_offset[order]
        self.records = columns.records[order]
        self.segment = columns.segment_of_span[order]
        self.follows = self.partition[1:] == self.partition[:-1]

    def order_faults(self) -> Iterator[Fault]:
        """Spans that overlap, or whose runs are not in the order of the log."""
        for at in _first(self.follows & (self.base[1:] <= self.last[:-1])):
            text = f"holds offset {self.base[at + 1]} of partition {self.partition[at]}, which {self._key(at)} holds"
            yield Fault(self._key(at + 1), f"{text}, too (inv. 4)")
        runs = self.columns.run[self.segment]
        for at in _first(self.follows & (runs[1:] < runs[:-1])):
            text = f"is of run {runs[at + 1]}, with later offsets of partition {self.partition[at]} than run {runs[at]}"
            yield Fault(self._key(at + 1), f"{text} in {self._key(at)}")

    def count_faults(self, states: Mapping[int, ColdState]) -> Iterator[Fault]:
        """Spans whose number of records cannot be right."""
        width = self.last - self.base + 1
        for at in np.flatnonzero(self.records != width).tolist():
            state = states.get(int(self.partition[at]), ColdState())
            base, records = int(self.base[at]), int(self.records[at])
            offsets = int(width[at]) - lost_between(state.losses, base, int(self.last[at]) + 1)
            where = f"has {records} records for {offsets} offsets of partition {self.partition[at]}"
            if not 0 < records <= offsets:
                yield Fault(self._key(at), where)
            elif base >= state.clean_end and records != offsets:
                yield Fault(self._key(at), f"{where}, above the clean end (inv. 4)")

    def density_faults(self, states: Mapping[int, ColdState]) -> Iterator[Fault]:
        """Offsets between log start and cold end that no span has, and that compaction did not remove."""
        empty = np.zeros(0, np.int64)
        for number in sorted({*states, *np.unique(self.partition).tolist()}):
            state = states.get(number, ColdState())
            first, end = np.searchsorted(self.partition, [number, number + 1])
            bases, lasts = (self.base[first:end], self.last[first:end]) if end > first else (empty, empty)
            if len(lasts) and int(lasts.max()) >= state.cold_end:
                text = f"holds offsets of partition {number} up to {lasts.max()}, and its cold end is {state.cold_end}"
                yield Fault(self._key(first + int(lasts.argmax())), text)
            for gap_first, gap_end in _gaps(bases, lasts, state):
                text = f"lacks offsets {gap_first} to {gap_end - 1} of partition {number}, which compaction did not"
                yield Fault(None, f"{text} remove (inv. 4, 5)")

    def _key(self, at: int) -> str:
        return self.columns.keys[int(self.segment[at])]


def _gaps(bases: Ints, lasts: Ints, state: ColdState) -> Iterator[tuple[int, int]]:
    """The offsets from the log start to the cold end that are missing, beyond the clean end and recorded losses."""
    begin = max(state.log_start_offset, state.clean_end)
    reached = np.maximum(np.maximum.accumulate(np.concatenate(([begin], lasts + 1))), begin)
    starts = np.concatenate((bases, [state.cold_end]))
    for at in _first(starts > reached):
        yield from not_lost(state.losses, int(reached[at]), int(starts[at]))


def _first(wrong: np.typing.NDArray[np.bool_]) -> list[int]:
    found: list[int] = np.flatnonzero(wrong)[:FAULTS_MAX].tolist()
    return found
