"""Goes through the steps of a partition's history one after the other and says what is wrong with them. It is pure.

    replay = Replay(place, earlier_heads={41: "5f..."})
    for step in steps:                          # from version 0 on
        if fault := replay.take(step): ...
    fault = replay.end_fault(newest)

A history is sound if each head is the hash of the one before it and of what the step changed; if the step could change
that (only retention and its like take records away, only merging, compaction and repair put others in the place of
segments);
and if the segments that are left after the last step are those the newest manifest lists, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import GENESIS, ChangeKind, Manifest
from tidelog.storage.manifests.manifest_chain import Step, head_after

REMOVES = frozenset(
    {ChangeKind.MERGE, ChangeKind.COMPACT, ChangeKind.EXPIRE, ChangeKind.DELETE_RECORDS, ChangeKind.LOSE}
)
ADDS = frozenset({ChangeKind.ARCHIVE, ChangeKind.MERGE, ChangeKind.COMPACT, ChangeKind.LOSE})
MOVES_COLD_END = frozenset({ChangeKind.ARCHIVE, ChangeKind.LOSE})
MOVES_LOG_START = frozenset({ChangeKind.EXPIRE, ChangeKind.DELETE_RECORDS})


class Replay:
    """Of the partition `place`. `earlier_heads` are heads by version that somebody wrote down once."""

    def __init__(self, place: TopicPartition, earlier_heads: Mapping[int, str] | None = None) -> None:
        self._place = place
        self._earlier_heads = earlier_heads or {}
        self._segments: Counter[str] = Counter()
        self._version = -1
        self._head = GENESIS
        self._log_start_offset = 0
        self._cold_end = 0

    def take(self, step: Step) -> str | None:
        """The next step; why it cannot be, None if it can. After a fault there is nothing more to take."""
        fault = self._chain_fault(step) or self._change_fault(step) or self._segments_fault(step)
        self._version, self._head = step.version, step.head
        self._log_start_offset, self._cold_end = step.log_start_offset, step.cold_end
        return f"version {step.version} {fault}" if fault else None

    def end_fault(self, newest: Manifest) -> str | None:
        """Why `newest` is not what the steps taken lead to; None if it is."""
        if (newest.version, newest.head) != (self._version, self._head):
            return f"version {newest.version} is not where its history leads: that ends with head {self._head}"
        listed = Counter(segment.sha256 for segment in newest.segments)
        if listed != self._segments:
            lacks, more = (self._segments - listed).total(), (listed - self._segments).total()
            return (
                f"version {newest.version} lacks {lacks} segments of its history, and lists {more} that are not in it"
            )
        unmet = [version for version in self._earlier_heads if version > newest.version]
        return f"ends at version {newest.version}, before version {max(unmet)} that was there" if unmet else None

    def _chain_fault(self, step: Step) -> str | None:
        if step.version != self._version + 1:
            return f"follows version {self._version}"
        if head_after(self._head, self._place, step) != step.head:
            return "does not hash to its head: it is not what was written, or does not follow the version before it"
        if self._earlier_heads.get(step.version, step.head) != step.head:
            return f"has head {step.head}, and had {self._earlier_heads[step.version]}: the past was written anew"
        return None

    def _change_fault(self, step: Step) -> str | None:
        kind = step.change.kind
        if step.change.removed and kind not in REMOVES:
            return f"removed segments, which {kind.value} does not do"
        if step.change.added and kind not in ADDS:
            return f"added segments, which {kind.value} does not do"
        if step.log_start_offset < self._log_start_offset or step.cold_end < self._cold_end:
            return "moved the log start or the cold end back"
        if step.log_start_offset > self._log_start_offset and kind not in MOVES_LOG_START:
            return f"moved the log start, which {kind.value} does not do"
        if step.cold_end > self._cold_end and kind not in MOVES_COLD_END:
            return f"moved the cold end, which {kind.value} does not do"
        return None

    def _segments_fault(self, step: Step) -> str | None:
        removed = Counter(step.change.removed)
        if not removed <= self._segments:
            return "removed a segment that was not there"
        self._segments -= removed
        self._segments += Counter(step.change.added)
        return None
