"""Replays the history of a partition's manifests from version 0 on, and says which step is at fault.

    await replay_history(store, place, newest, earlier_heads={41: "5f..."})      # reads the history; raises `Corrupt`
    replay = Replay(place); replay.take(step); replay.end_fault(newest)          # pure

A history is sound if:

- each head is the hash of the head before it and of the change of its step;
- each change is one that its kind may make: only retention and deletion remove records, and only merging, compaction
  and repair replace segments;
- the segments that are left after the last step are those that the newest manifest lists, by the sha256 of their bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import GENESIS, ChangeKind, Manifest
from tidelog.storage.manifests.manifest_chain import Step, chain_fault, head_after, step_of
from tidelog.storage.manifests.manifest_codec import stored_part
from tidelog.storage.manifests.manifest_history import HistoryBlock, ManifestHistory, block_fault
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.upkeep.task import Place

OBJECTS_AT_ONCE = 8

REMOVES = frozenset(
    {ChangeKind.MERGE, ChangeKind.COMPACT, ChangeKind.EXPIRE, ChangeKind.DELETE_RECORDS, ChangeKind.LOSE}
)
ADDS = frozenset({ChangeKind.ARCHIVE, ChangeKind.MERGE, ChangeKind.COMPACT, ChangeKind.LOSE})
MOVES_COLD_END = frozenset({ChangeKind.ARCHIVE, ChangeKind.LOSE})
MOVES_LOG_START = frozenset({ChangeKind.EXPIRE, ChangeKind.DELETE_RECORDS})


async def replay_history(
    store: ObjectStore, place: Place, newest: Manifest, earlier_heads: Mapping[int, str] | None = None
) -> None:
    """Replay the history up to `newest`. Raises `Corrupt`, which names the object at fault, if it is not sound or lacks
    one of `earlier_heads`; `NotFound` (the topic was deleted), `Unavailable`."""
    replay = Replay(place.topic_partition, earlier_heads)
    async for key, step in steps_up_to(store, place, newest.version):
        if fault := replay.take(step):
            raise Corrupt(key, fault)
    if fault := replay.end_fault(newest):
        raise Corrupt(ManifestLog(store, place.topic, place.topic_partition).key(max(newest.version, 0)), fault)


async def steps_up_to(store: ObjectStore, place: Place, last: int) -> AsyncIterator[tuple[str, Step]]:
    """The steps of versions 0 to `last`, with the keys of their objects: first from the history blocks, then from the
    versions that still exist. A version that is collected meanwhile is found in the history. Raises `Corrupt` at a
    gap."""
    history = ManifestHistory(store, place.topic, place.topic_partition)
    log = ManifestLog(store, place.topic, place.topic_partition)

    async def read_block(versions: tuple[int, int]) -> HistoryBlock:
        block = await history.read(*versions)
        if fault := block_fault(block):
            raise Corrupt(history.key(*versions), fault)
        return block

    async def read_step(version: int) -> Step:
        manifest = stored_part(await log.stored(version))
        if fault := chain_fault(manifest):
            raise Corrupt(log.key(version), fault)
        return step_of(manifest)

    due = 0
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
            if not any(first <= due <= end for first, end in await history.blocks()):
                raise Corrupt(log.key(due), "is missing, and no block of the history has it") from None


class Replay:
    """The state of the partition `place` after the steps taken so far. `earlier_heads` maps versions to the heads that
    an earlier attestation noted."""

    def __init__(self, place: TopicPartition, earlier_heads: Mapping[int, str] | None = None) -> None:
        self._place = place
        self._earlier_heads = earlier_heads or {}
        self._segments: Counter[str] = Counter()
        self._version = -1
        self._head = GENESIS
        self._log_start_offset = 0
        self._cold_end = 0

    def take(self, step: Step) -> str | None:
        """Apply the next step. Returns its fault, or None; after a fault no further step may be taken."""
        fault = self._chain_fault(step) or self._change_fault(step) or self._segments_fault(step)
        self._version, self._head = step.version, step.head
        self._log_start_offset, self._cold_end = step.log_start_offset, step.cold_end
        return f"version {step.version} {fault}" if fault else None

    def end_fault(self, newest: Manifest) -> str | None:
        """Why `newest` is not the result of the steps taken; None if it is."""
        if (newest.version, newest.head) != (self._version, self._head):
            return f"version {newest.version} does not follow from its history, which ends with head {self._head}"
        listed = Counter(segment.sha256 for segment in newest.segments)
        if listed != self._segments:
            lacks, more = (self._segments - listed).total(), (listed - self._segments).total()
            return (
                f"version {newest.version} lacks {lacks} segments of its history, and lists {more} that are not in it"
            )
        unmet = [version for version in self._earlier_heads if version > newest.version]
        return f"ends at version {newest.version}, before version {max(unmet)}, which existed" if unmet else None

    def _chain_fault(self, step: Step) -> str | None:
        if step.version != self._version + 1:
            return f"follows version {self._version}"
        if head_after(self._head, self._place, step) != step.head:
            return "does not hash to its head: it was altered, or does not follow the version before it"
        if self._earlier_heads.get(step.version, step.head) != step.head:
            return f"has head {step.head}, and had {self._earlier_heads[step.version]}: the past was rewritten"
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
