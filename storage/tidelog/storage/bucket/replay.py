"""Replays the history of a shard's manifest, and says which step is at fault.

    replay = Replay(shard)
    async for found in links(log, history, 0, newest.version):
        fault = replay.take(found)

A history is sound if:

- each head is the hash of the head before it and of the change of its step;
- each change of a topic is one that its kind may make: only retention and deletion remove records, and only merging,
  compaction and repair replace segments (`TopicReplay`);
- the segments that are left after the last step are those that the newest version lists, by the sha256 of their bytes.
  Nothing else proves this: a head covers the changes, and not the lists that they lead to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from tidelog.storage.bucket.finding import UNREADABLE, Finding, Unreadable, error, unreadable
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.manifests.shard_chain import GENESIS, Step, TopicStep, head_after
from tidelog.storage.manifests.shard_history import HistoryBlock, ShardHistory
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest, step_of
from tidelog.storage.manifests.shard_values import ChangeKind

BLOCKS_AT_ONCE = 4
VERSIONS_AT_ONCE = 2
"""A version of a shard with a thousand topics takes a hundred MB while it is decoded."""

REMOVES = frozenset(
    {
        *(ChangeKind.MERGE, ChangeKind.COMPACT, ChangeKind.EXPIRE, ChangeKind.DELETE_RECORDS),
        *(ChangeKind.DELETE_TOPIC, ChangeKind.LOSE),
    }
)
ADDS = frozenset({ChangeKind.ARCHIVE, ChangeKind.MERGE, ChangeKind.COMPACT, ChangeKind.LOSE})
MOVES_COLD_END = frozenset({ChangeKind.ARCHIVE, ChangeKind.LOSE})
MOVES_LOG_START = frozenset({ChangeKind.EXPIRE, ChangeKind.DELETE_RECORDS})

Versions = tuple[int, int]
"""The first and the last version of a block."""


@dataclass(frozen=True)
class Link:
    """A step, the object that has it, and the head before it according to that object."""

    key: str
    previous_head: str
    step: Step


async def links(log: ShardLog, history: ShardHistory, first: int, last: int) -> AsyncGenerator[Link | Unreadable, None]:
    """The steps of versions `first` to `last`: from the history blocks, then from the versions that are in no block. A
    version that is collected meanwhile is found in the history. An object that cannot be read comes as its fault, a
    gap as that of the first version in it; then the steps after it follow."""
    due, blocks = first, await history.blocks()
    while due <= last:
        row = in_order(_row(blocks, due), partial(_read_block, history), at_once=BLOCKS_AT_ONCE)
        async for versions, found in row:
            for each in found:
                if not isinstance(each, Link) or due <= each.step.version <= last:
                    yield each
            due = versions[1] + 1
        stored = in_order(range(due, last + 1), partial(_read_version, log), at_once=VERSIONS_AT_ONCE)
        async with aclosing(stored):
            async for version, read in stored:
                if read is None:
                    break
                yield read
                due = version + 1
        if due <= last:
            blocks = await history.blocks()
            if not any(start <= due <= end for start, end in blocks):
                yield Corrupt(log.key(due), "is missing, and no block of the history has it")
                due = await _after_gap(log, blocks, due, last)


def _row(blocks: Sequence[Versions], due: int) -> Iterator[Versions]:
    """The blocks from version `due` on that follow each other without a gap."""
    for first, last in blocks:
        if first <= due <= last:
            yield first, last
            due = last + 1


async def _after_gap(log: ShardLog, blocks: Sequence[Versions], missing: int, last: int) -> int:
    """The first version after `missing` that is stored or in a block; beyond `last` if there is none."""
    later = [first for first, _ in blocks if first > missing]
    async for version in log.versions(missing + 1):
        return min([version, *later])
    return min(later, default=last + 1)


async def _read_block(history: ShardHistory, versions: Versions) -> Sequence[Link | Unreadable]:
    key = history.key(*versions)
    try:
        block = await history.read(*versions)
    except UNREADABLE as fault:
        return [fault]
    except NotFound:
        return [Corrupt(key, "was listed and is now missing")]
    return links_of(key, block)


def links_of(key: str, block: HistoryBlock) -> Sequence[Link]:
    """The steps of the block that is stored as `key`."""
    heads = [block.previous_head, *(step.head for step in block.steps)]
    return [Link(key, head, step) for head, step in zip(heads, block.steps, strict=False)]


async def _read_version(log: ShardLog, version: int) -> Link | Unreadable | None:
    """None if the version does not exist."""
    try:
        manifest = await log.read(version)
    except UNREADABLE as fault:
        return fault
    except NotFound:
        return None
    return Link(log.key(version), manifest.previous_head, step_of(manifest))


class Replay:
    """The history of `shard` after the links taken so far: from the beginning, or from the first link if `is_begun`.
    `topics`: all topics, or those in `wanted`. `earlier` maps versions to the heads that an attestation noted.
    `is_whole`: no step was missing or at fault."""

    def __init__(
        self,
        shard: int,
        *,
        wanted: Collection[str] | None = None,
        earlier: Mapping[int, str] | None = None,
        is_begun: bool = False,
    ) -> None:
        self._shard = shard
        self._wanted = wanted
        self._earlier = earlier or {}
        self.version = -1
        self.head: str | None = None if is_begun else GENESIS
        self.topics: dict[str, TopicReplay] = defaultdict(TopicReplay)
        self.is_whole = not is_begun

    def take(self, found: Link | Unreadable) -> Finding | None:
        """The fault of what `links` found next, or None. Faults of topics are kept with the topic. After steps that
        cannot be read, the next link counts as sound."""
        if not isinstance(found, Link):
            self.head, self.is_whole = None, False
            return unreadable(found)
        step = found.step
        text = self._fault(found)
        self.version, self.head = step.version, step.head
        for topic_id, changed in step.recorded.topics.items():
            if self._wanted is None or topic_id in self._wanted:
                self.topics[topic_id].take(found.key, step, changed)
        self.is_whole = self.is_whole and not text
        return error(found.key, text) if text else None

    def end_fault(self, newest: ShardManifest) -> str | None:
        """Why the history does not lead to `newest`, or is shorter than it was; None if neither."""
        if unmet := [version for version in self._earlier if version > self.version]:
            return f"ends at version {self.version}, before version {max(unmet)}, which existed"
        return None if self.head == newest.head else "does not follow from its history"

    async def topic_fault(self, log: ShardLog, newest: ShardManifest, topic_id: str) -> Finding | None:
        """Why the topic in `newest` is not the result of its steps; None if it is. Raises `Corrupt`, `NewerFormat` (its
        list), `Conflict` (`newest` is old, and the list was collected)."""
        topic = self.topics[topic_id]
        if topic.fault:
            return topic.fault
        state = (await log.with_lists(newest, [topic_id])).topics.get(topic_id)
        key = state.stored.key if state and state.stored else log.key(max(newest.version, 0))
        if state is None and topic.left_at is None:
            return error(key, "does not have the topic any more, and no version deleted it")
        listed = Counter(state.segments.columns.sha256 if state else ())
        if listed == topic.segments:
            return None
        lacks, more = (topic.segments - listed).total(), (listed - topic.segments).total()
        name = state.name if state else topic_id
        text = f"lacks {lacks} segments of its history, and lists {more} that are not in it"
        return error(key, f"{text}: the segments of {name} were altered")

    def _fault(self, link: Link) -> str | None:
        step, before = link.step, link.previous_head
        if before != (self.head or before) or head_after(before, self._shard, step) != step.head:
            return f"version {step.version} does not hash to its head, or does not follow the version before it"
        noted = self._earlier.get(step.version, step.head)
        if noted != step.head:
            return f"version {step.version} has head {step.head}, and had {noted}: the past was rewritten"
        return None


class TopicReplay:
    """A topic after the steps taken so far: its segments, by sha256, and by partition the log start, the cold end and
    the clean end. `left_at`: the version that deleted it. `fault`: of its first wrong step."""

    def __init__(self) -> None:
        self.segments: Counter[str] = Counter()
        self.offsets: dict[int, tuple[int, int, int]] = {}
        self.left_at: int | None = None
        self.fault: Finding | None = None

    def take(self, key: str, step: Step, changed: TopicStep) -> None:
        """Apply what a version changed in the topic."""
        kind = step.recorded.kind
        fault = self._change_fault(kind, changed) or self._segments_fault(changed)
        if fault and not self.fault:
            self.fault = error(key, f"version {step.version} {fault}")
        self.offsets |= {number: (start, end, clean) for number, start, end, clean in changed.offsets}
        if kind is ChangeKind.DELETE_TOPIC:
            self.left_at, self.offsets = step.version, {}

    def _change_fault(self, kind: ChangeKind, changed: TopicStep) -> str | None:
        if changed.removed and kind not in REMOVES:
            return f"removed segments, which {kind.value} does not do"
        if changed.added and kind not in ADDS:
            return f"added segments, which {kind.value} does not do"
        for number, start, end, _ in changed.offsets:
            before_start, before_end, _ = self.offsets.get(number, (0, 0, 0))
            if start < before_start or end < before_end:
                return f"moved the log start or the cold end of partition {number} back"
            if start > before_start and kind not in MOVES_LOG_START:
                return f"moved the log start of partition {number}, which {kind.value} does not do"
            if end > before_end and kind not in MOVES_COLD_END:
                return f"moved the cold end of partition {number}, which {kind.value} does not do"
        return None

    def _segments_fault(self, changed: TopicStep) -> str | None:
        for sha256 in changed.removed:
            if not self.segments[sha256]:
                return "removed a segment that was not there"
            self.segments[sha256] -= 1
            if not self.segments[sha256]:
                del self.segments[sha256]
        self.segments.update(changed.added)
        return None
