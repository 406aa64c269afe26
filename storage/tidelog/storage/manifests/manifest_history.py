"""The history of a partition: the changes of all versions that were collected, kept for ever.

Old versions of a manifest are deleted (`upkeep.collect`). Their changes are kept, so that the chain of hashes can be
followed from its beginning (`attest`). The changes of versions ``[n * 256, (n + 1) * 256)`` are in one object, a block,
which is written before the first of them is deleted:

    topics/web/<id>/_manifest/00000/_history/<first>-<last>.json

A block is made of objects that never change, so every worker makes the same block. It is created once; a worker that
finds it there need not write it. It is not deleted while its topic exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.formats import Format
from tidelog.storage.layout import TopicPartition, history_key, history_prefix, history_versions
from tidelog.storage.manifests.json_envelope import seal, unseal
from tidelog.storage.manifests.manifest import Change, ChangeKind
from tidelog.storage.manifests.manifest_chain import Step, head_after
from tidelog.storage.object_store import ObjectStore, list_all

HISTORY_FORMAT = Format("history", 1, 1)

BLOCK_VERSIONS = 256
"""A partition that gets a version per minute has 2,000 blocks after a year, and at most this many old versions."""

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Step(msgspec.Struct, forbid_unknown_fields=True):
    version: _Natural
    log_start_offset: _Natural
    cold_end: _Natural
    clean_end: _Natural
    kind: ChangeKind
    removed: list[str]
    added: list[str]
    head: str


class _Block(msgspec.Struct, forbid_unknown_fields=True):
    topic_id: str
    partition: _Natural
    previous_head: str
    steps: list[_Step]


_decoder = msgspec.json.Decoder(_Block)


@dataclass(frozen=True)
class HistoryBlock:
    """Consecutive steps, at least one; `previous_head` is the head before the first."""

    topic_partition: TopicPartition
    previous_head: str
    steps: tuple[Step, ...]

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last version."""
        return self.steps[0].version, self.steps[-1].version


def encode_block(block: HistoryBlock) -> bytes:
    document = _Block(
        topic_id=block.topic_partition.topic_id,
        partition=block.topic_partition.partition,
        previous_head=block.previous_head,
        steps=[_stored(step) for step in block.steps],
    )
    return seal(HISTORY_FORMAT, msgspec.json.encode(document))


def decode_block(key: str, data: bytes) -> HistoryBlock:
    """Raises `Corrupt` naming `key`. It does not check the hashes: see `block_fault`."""
    try:
        document = _decoder.decode(unseal(key, data, HISTORY_FORMAT))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(key, f"is not a history block: {error}") from error
    steps = tuple(_step(step) for step in document.steps)
    first = steps[0].version if steps else 0
    if not steps or [step.version for step in steps] != list(range(first, first + len(steps))):
        raise Corrupt(key, "does not hold versions that follow each other")
    return HistoryBlock(TopicPartition(document.topic_id, document.partition), document.previous_head, steps)


def block_fault(block: HistoryBlock) -> str | None:
    """Why the heads in `block` do not follow from each other; None if they do."""
    head = block.previous_head
    for step in block.steps:
        if head_after(head, block.topic_partition, step) != step.head:
            return (
                f"version {step.version} does not hash to its head: it was altered, or does not follow the version "
                "before it"
            )
        head = step.head
    return None


class ManifestHistory:
    """The blocks of `topic_partition` of `topic`."""

    def __init__(self, store: ObjectStore, topic: str, topic_partition: TopicPartition) -> None:
        self._store = store
        self._place = topic_partition
        self._prefix = history_prefix(topic, topic_partition.topic_id, topic_partition.partition)

    def key(self, first: int, last: int) -> str:
        """The name of the block that holds versions `first` to `last`."""
        return history_key(self._prefix, first, last)

    async def blocks(self) -> Sequence[tuple[int, int]]:
        """The first and last version of each block, ascending. Raises `Unavailable`."""
        found = [history_versions(info.key, self._prefix) async for info in list_all(self._store, self._prefix)]
        return [versions for versions in found if versions is not None]

    async def has(self, first: int, last: int) -> bool:
        """Whether the block is there. Raises `Unavailable`."""
        try:
            await self._store.head(self.key(first, last))
        except NotFound:
            return False
        return True

    async def read(self, first: int, last: int) -> HistoryBlock:
        """Raises `NotFound`, `Corrupt`."""
        key = self.key(first, last)
        block = decode_block(key, (await self._store.get(key)).data)
        if (block.topic_partition, block.versions) != (self._place, (first, last)):
            raise Corrupt(key, "is the history of another partition or of other versions")
        return block

    async def write(self, block: HistoryBlock) -> None:
        """Create `block`, or find it there. Raises `Corrupt` if the stored block is different."""
        key = self.key(*block.versions)
        try:
            await self._store.create(key, encode_block(block))
        except Conflict as error:
            if await self.read(*block.versions) != block:
                raise Corrupt(key, "contradicts the versions that are still stored") from error


def _stored(step: Step) -> _Step:
    change = step.change
    offsets = (step.log_start_offset, step.cold_end, step.clean_end)
    return _Step(step.version, *offsets, change.kind, list(change.removed), list(change.added), step.head)


def _step(step: _Step) -> Step:
    change = Change(step.kind, tuple(step.removed), tuple(step.added))
    return Step(step.version, step.log_start_offset, step.cold_end, step.clean_end, change, step.head)
