"""A shard as a tool reads it that walks a bucket for hours while brokers append: its manifest, and headers of its
log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tidelog.storage.bucket.finding import UNREADABLE, Finding, Unreadable, error, unreadable
from tidelog.storage.errors import Conflict, NotFound
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import WalHeader

FRESH_LOOKS_MAX = 8
"""How many times a list is looked for in a newer version, because it was collected."""


@dataclass(frozen=True)
class TopicLook:
    """A topic in the version that was read, with its list. `state` is None if the version does not have it. `garbage`:
    all objects of the shard that wait for their deletion."""

    state: TopicState | None
    garbage: frozenset[str]

    @cached_property
    def keys(self) -> Sequence[str]:
        """The keys of its segments, ascending."""
        return sorted(self.state.segments.columns.keys) if self.state else ()

    def segment(self, key: str) -> TopicSegment | None:
        """The listed segment `key`."""
        return self.state.segments.named(key) if self.state else None

    def names(self, key: str) -> bool:
        """Whether the version names the segment or list `key`, as garbage or not."""
        if key in self.garbage or self.state is None:
            return key in self.garbage
        return key in self.state.segments or (self.state.stored is not None and self.state.stored.key == key)


class ShardLook:
    """`manifest` is the version that was read last, without lists; None if it cannot be read, and then `fault` says
    why. `lists` and `garbage` are the keys in it. Lists are not kept in memory."""

    def __init__(self, store: ObjectStore, shard: int, runtime: Runtime) -> None:
        self.shard = shard
        self.log = ShardLog(store, shard, runtime, lists_bytes=0)
        self.manifest: ShardManifest | None = None
        self.fault: Finding | None = None
        self.lists: frozenset[str] = frozenset()
        self.garbage: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """The version's object."""
        return self.log.key(max(self.manifest.version if self.manifest else 0, 0))

    async def refresh(self) -> ShardManifest | None:
        """Read the newest version. Raises `Unavailable`."""
        before = self.manifest
        try:
            self.manifest, self.fault = await self.log.newest(), None
        except UNREADABLE as fault:
            harm = f"no archived record of shard {self.shard} can be found without it"
            self.manifest, self.fault = None, unreadable(fault, harm=harm)
        except NotFound as missing:
            self.manifest, self.fault = None, error(self.log.key(0), f"cannot be read: {missing}")
        if self.manifest is not before:
            topics = self.manifest.topics.values() if self.manifest else ()
            self.lists = frozenset(topic.stored.key for topic in topics if topic.stored)
            self.garbage = frozenset(each.key for each in (self.manifest.garbage if self.manifest else ()))
        return self.manifest

    async def topic(self, topic_id: str) -> TopicLook | None:
        """The topic with its list; None if the manifest cannot be read. Raises `Corrupt`, `NewerFormat` (the list),
        `Unavailable`."""
        for _ in range(FRESH_LOOKS_MAX):
            manifest = self.manifest or await self.refresh()
            garbage = self.garbage
            if manifest is None:
                return None
            try:
                return TopicLook((await self.log.with_lists(manifest, [topic_id])).topics.get(topic_id), garbage)
            except Conflict:
                await self.refresh()
        raise Conflict(f"the lists of shard {self.shard} were replaced {FRESH_LOOKS_MAX} times while they were read")


class ShardLooks:
    """The manifests of all shards; `known` by shard."""

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self.known: dict[int, ShardLook] = {}

    def __call__(self, shard: int) -> ShardLook:
        return self.known.setdefault(shard, ShardLook(self._store, shard, self._runtime))

    def places(self) -> list[SegmentPlace]:
        """The topics of all manifests that were read."""
        return [
            SegmentPlace(topic.name, topic_id, shard)
            for shard, look in self.known.items()
            if look.manifest
            for topic_id, topic in look.manifest.topics.items()
        ]


HeaderAnswer = WalHeader | Unreadable | NotFound


async def read_header(wal: Wal, number: int, *, whole: bool) -> HeaderAnswer:
    """The header of an entry, or why it cannot be read. `whole`: read and check the entry's records as well."""
    try:
        if not whole:
            return await wal.header(number)
        data = (await wal.log.read(number)).data
        return (await asyncio.to_thread(wal.decode, number, data)).header
    except (*UNREADABLE, NotFound) as fault:
        return fault
