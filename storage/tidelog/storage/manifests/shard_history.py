"""The history of a shard: the steps of all versions that were collected, kept for ever.

Old versions of the manifest are deleted (`upkeep.collect`). Their steps are kept, so that the chain of hashes can be
followed from its beginning (`attest`). The steps of versions ``[n * 256, (n + 1) * 256)`` are in one object, a block,
which is written before the first of them is deleted:

    manifests/0003/history/<first>-<last>.json      JSON with a checksum (`json_envelope`)

A block is made of objects that never change, so every worker makes the same block. It is created once; a worker that
finds it there need not write it. It is never deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.formats import HISTORY
from tidelog.storage.layout import history_key, history_versions, shard_history_prefix
from tidelog.storage.manifests.json_envelope import Natural, SealedJson
from tidelog.storage.manifests.shard_chain import Step
from tidelog.storage.object_store import ObjectStore, list_all

BLOCK_VERSIONS = 256
"""A shard that gets a version per minute has 2,000 blocks after a year, and at most twice this many old versions."""

BLOCKS_MAX = 100_000
"""Blocks of a shard, so that foreign objects with names like a block's cannot fill the memory of a tool. A shard that
gets a version per minute has fewer for 48 years."""


class HistoryBlock(msgspec.Struct, frozen=True):
    """Steps of versions that follow each other, at least one; `previous_head` is the head before the first."""

    shard: Natural
    previous_head: str
    steps: Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last version."""
        return self.steps[0].version, self.steps[-1].version


BLOCK = SealedJson(HistoryBlock, HISTORY, "is not a history block")
"""The stored form of a block. Decoding does not check the hashes: a replay does (`bucket.replay`)."""


class ShardHistory:
    """The blocks of `shard`."""

    def __init__(self, store: ObjectStore, shard: int) -> None:
        self._store = store
        self._shard = shard
        self._prefix = shard_history_prefix(shard)

    def key(self, first: int, last: int) -> str:
        """The name of the block that holds versions `first` to `last`."""
        return history_key(self._prefix, first, last)

    async def blocks(self) -> Sequence[tuple[int, int]]:
        """The first and last version of each block, ascending. Raises `Unavailable`; `Corrupt` if there are more than
        `BLOCKS_MAX`."""
        found: list[tuple[int, int]] = []
        async for info in list_all(self._store, self._prefix):
            if versions := history_versions(info.key, self._prefix):
                found.append(versions)
            if len(found) > BLOCKS_MAX:
                text = f"has more than {BLOCKS_MAX} blocks, which no shard writes: remove the objects of other programs"
                raise Corrupt(self._prefix, text)
        return found

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
        block = BLOCK.decode(key, (await self._store.get(key)).data)
        if (block.shard, block.versions) != (self._shard, (first, last)):
            raise Corrupt(key, "is the history of another shard or of other versions")
        return block

    async def write(self, block: HistoryBlock) -> None:
        """Create `block`, or find it there. Raises `Corrupt` if the stored block is different."""
        key = self.key(*block.versions)
        try:
            await self._store.create(key, BLOCK.encode(block))
        except Conflict as error:
            if await self.read(*block.versions) != block:
                raise Corrupt(key, "contradicts the versions that are still stored") from error
