"""Replays the history of a shard's manifest, and says which step is at fault.

    async for key, step in steps_of(log, history, 0, newest.version): ...   # raises `Corrupt` at a gap
    chain = Chain(shard); chain.take(step)                                         # pure
    replay = TopicReplay(); replay.take(version, kind, step); replay.end_fault(state)

A history is sound if:

- each head is the hash of the head before it and of the change of its step (`Chain`);
- each change of a topic is one that its kind may make: only retention and deletion remove records, and only merging,
  compaction and repair replace segments (`TopicReplay`);
- the segments that are left after the last step are those that the newest version lists, by the sha256 of their bytes
  (`TopicReplay`). Nothing else proves this: a head covers the changes, and not the lists that they lead to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.manifests.shard_chain import GENESIS, Step, TopicStep, head_after
from tidelog.storage.manifests.shard_history import HistoryBlock, ShardHistory
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import step_of
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.manifests.topic_state import TopicState

OBJECTS_AT_ONCE = 4

REMOVES = frozenset(
    {
        *(ChangeKind.MERGE, ChangeKind.COMPACT, ChangeKind.EXPIRE, ChangeKind.DELETE_RECORDS),
        *(ChangeKind.DELETE_TOPIC, ChangeKind.LOSE),
    }
)
ADDS = frozenset({ChangeKind.ARCHIVE, ChangeKind.MERGE, ChangeKind.COMPACT, ChangeKind.LOSE})
MOVES_COLD_END = frozenset({ChangeKind.ARCHIVE, ChangeKind.LOSE})
MOVES_LOG_START = frozenset({ChangeKind.EXPIRE, ChangeKind.DELETE_RECORDS})


async def steps_of(log: ShardLog, history: ShardHistory, first: int, last: int) -> AsyncIterator[tuple[str, Step]]:
    """The steps of versions `first` to `last`, with the keys of their objects: from the history blocks, then from the
    versions that still exist. A version that is collected meanwhile is found in the history. Raises `Corrupt` at a
    gap."""

    async def read_block(versions: tuple[int, int]) -> HistoryBlock:
        return await history.read(*versions)

    async def read_step(version: int) -> Step:
        return step_of(await log.read(version))

    due = first
    while due <= last:
        blocks = [versions for versions in await history.blocks() if versions[1] >= due]
        async for versions, block in in_order(blocks, read_block, at_once=OBJECTS_AT_ONCE):
            for step in block.steps:
                if step.version == due <= last:
                    yield history.key(*versions), step
                    due += 1
        try:
            async for _, step in in_order(range(due, last + 1), read_step, at_once=OBJECTS_AT_ONCE):
                yield log.key(due), step
                due += 1
        except NotFound:
            if not any(start <= due <= end for start, end in await history.blocks()):
                raise Corrupt(log.key(due), "is missing, and no block of the history has it") from None


class Chain:
    """The hashes of `shard` after the steps taken so far: from the beginning, or after `version` with `head`.
    `earlier_heads` maps versions to the heads that an earlier attestation noted."""

    def __init__(
        self, shard: int, earlier_heads: Mapping[int, str] | None = None, *, version: int = -1, head: str = GENESIS
    ) -> None:
        self._shard = shard
        self._earlier_heads = earlier_heads or {}
        self.version = version
        self.head = head

    def take(self, step: Step) -> str | None:
        """The fault of the next step, or None; after a fault no further step may be taken."""
        if step.version != self.version + 1:
            return f"has version {step.version} after version {self.version}"
        if head_after(self.head, self._shard, step) != step.head:
            return f"version {step.version} does not hash to its head, or does not follow the version before it"
        noted = self._earlier_heads.get(step.version, step.head)
        if noted != step.head:
            return f"version {step.version} has head {step.head}, and had {noted}: the past was rewritten"
        self.version, self.head = step.version, step.head
        return None

    def end_fault(self) -> str | None:
        """Why the history is shorter than it was; None if it is not."""
        unmet = [version for version in self._earlier_heads if version > self.version]
        return f"ends at version {self.version}, before version {max(unmet)}, which existed" if unmet else None


class TopicReplay:
    """The topic after the steps taken so far. `left_at`: the version in which it left the shard with all segments."""

    def __init__(self) -> None:
        self.segments: Counter[str] = Counter()
        self.left_at: int | None = None
        self._offsets: dict[int, tuple[int, int]] = {}

    def take(self, version: int, kind: ChangeKind, step: TopicStep) -> str | None:
        """Apply what `version` changed in the topic. Returns its fault, or None."""
        fault = self._change_fault(kind, step) or self._segments_fault(step)
        self._offsets |= {number: (start, end) for number, start, end, _ in step.offsets}
        if kind is ChangeKind.DELETE_TOPIC:
            self.left_at, self._offsets = version, {}
        return f"version {version} {fault}" if fault else None

    def end_fault(self, state: TopicState | None) -> str | None:
        """Why `state`, whose list was read, is not the result of the steps taken; None if it is."""
        listed = Counter(state.segments.columns.sha256) if state else Counter[str]()
        if listed == self.segments:
            return None
        lacks, more = (self.segments - listed).total(), (listed - self.segments).total()
        return f"lacks {lacks} segments of its history, and lists {more} that are not in it"

    def _change_fault(self, kind: ChangeKind, step: TopicStep) -> str | None:
        if step.removed and kind not in REMOVES:
            return f"removed segments, which {kind.value} does not do"
        if step.added and kind not in ADDS:
            return f"added segments, which {kind.value} does not do"
        for number, start, end, _ in step.offsets:
            before_start, before_end = self._offsets.get(number, (0, 0))
            if start < before_start or end < before_end:
                return f"moved the log start or the cold end of partition {number} back"
            if start > before_start and kind not in MOVES_LOG_START:
                return f"moved the log start of partition {number}, which {kind.value} does not do"
            if end > before_end and kind not in MOVES_COLD_END:
                return f"moved the cold end of partition {number}, which {kind.value} does not do"
        return None

    def _segments_fault(self, step: TopicStep) -> str | None:
        for sha256 in step.removed:
            if not self.segments[sha256]:
                return "removed a segment that was not there"
            self.segments[sha256] -= 1
            if not self.segments[sha256]:
                del self.segments[sha256]
        self.segments.update(step.added)
        return None
