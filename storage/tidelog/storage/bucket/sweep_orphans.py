"""Which uploads of a shard no manifest names, and the version after which none ever will (`bucket.sweep`).

An upload is a segment or a topic's list. It is an orphan if the newest manifest names it neither in a list nor as
garbage, and if the manifest covers its records, which its header tells (one request). Others are left alone:

- a segment of a pass that crashed holds records that are still in the WAL and will be archived;
- an object with records beyond the cold ends may also mean that the newest version was lost. Then it may be the only
  copy of these records, and `tidelog bucket repair` needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from cachetools import LRUCache

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.manifests.list_codec import cold_ends_in
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ByteRange, ObjectInfo, ObjectStore
from tidelog.storage.parquet.parquet_format import decode_header, footer_bytes
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, ends_in_header
from tidelog.storage.single_flight import SingleFlight

TAIL_BYTES = 64 * 1024
"""The first read of a footer: enough for about 100 row groups."""
READS_AT_ONCE = 16
NO_SHARD = -1
DOUBTS_MAX = 16
"""After so many doubtful objects of a page, the rest of it is not read: each costs a request."""


@dataclass(frozen=True)
class Upload:
    """A listed segment or list of a topic in a shard, by its key. `shard` is `NO_SHARD` for another object in a
    topic's folder; `topic` is None for a list, whose key has only the id."""

    shard: int
    topic_id: str
    info: ObjectInfo
    topic: str | None = None

    @property
    def key(self) -> str:
        return self.info.key

    @property
    def folder(self) -> str:
        return f"{self.key.rpartition('/')[0]}/"


@dataclass
class Judged:
    """`orphans`, and the uploads that are left alone because the manifest does not cover their records, or because they
    cannot be read."""

    orphans: list[Upload] = field(default_factory=list)
    doubtful: list[Upload] = field(default_factory=list)


class ShardUploads:
    """Judges uploads by the newest manifest of their shard, which is read once for all of them. `topics_max`: topics
    whose lists are kept in memory. All methods take uploads of one shard and topic, if not said otherwise."""

    def __init__(self, store: ObjectStore, runtime: Runtime, topics_max: int) -> None:
        self._store = store
        self._runtime = runtime
        self._logs: dict[int, ShardLog] = {}
        self._garbage: dict[int, frozenset[str]] = {}
        self._topics: LRUCache[tuple[int, str], TopicState | None] = LRUCache(topics_max)
        self._reads: SingleFlight[tuple[int, str], TopicState | None] = SingleFlight()

    async def unnamed(self, uploads: Sequence[Upload]) -> list[Upload]:
        """Those that the manifest names neither in a list nor as garbage. Raises `Corrupt`."""
        shard, topic_id = uploads[0].shard, uploads[0].topic_id
        topic = await self._topic(shard, topic_id)
        return [upload for upload in uploads if not _is_named(upload.key, topic, self._garbage[shard])]

    async def judged(self, uploads: Sequence[Upload]) -> Judged:
        """Which of the unnamed `uploads` are orphans."""
        judged = Judged()
        async with aclosing(in_order(uploads, self._is_covered, at_once=READS_AT_ONCE)) as read:
            async for upload, covered in read:
                if covered is not None:
                    (judged.orphans if covered else judged.doubtful).append(upload)
                if len(judged.doubtful) == DOUBTS_MAX:
                    break
        return judged

    async def fenced(self, uploads: Sequence[Upload]) -> Sequence[Upload]:
        """Append a version after which no worker can name `uploads`, which are of one shard and any topics; returns
        those that are still unnamed. Returns none if other workers append faster: a later sweep finds them again."""
        still: list[Upload] = []

        def plan(manifest: ShardManifest) -> ManifestChange | None:
            nonlocal still
            garbage = frozenset(each.key for each in manifest.garbage)
            still = [each for each in uploads if not _is_named(each.key, manifest.topics.get(each.topic_id), garbage)]
            return ManifestChange(ChangeKind.SWEEP) if still else None

        try:
            await self._log(uploads[0].shard).change({upload.topic_id for upload in uploads}, plan)
        except Conflict:
            return ()
        return still

    def _log(self, shard: int) -> ShardLog:
        if shard not in self._logs:
            self._logs[shard] = ShardLog(self._store, shard, self._runtime, lists_bytes=0)
        return self._logs[shard]

    async def _topic(self, shard: int, topic_id: str) -> TopicState | None:
        place = shard, topic_id
        if place in self._topics:
            return self._topics[place]
        topic = self._topics[place] = await self._reads.run(place, lambda: self._read(shard, topic_id))
        return topic

    async def _read(self, shard: int, topic_id: str) -> TopicState | None:
        log = self._log(shard)
        manifest = log.known or await log.latest()
        self._garbage.setdefault(shard, frozenset(each.key for each in manifest.garbage))
        return (await log.with_lists(manifest, [topic_id])).topics.get(topic_id)

    async def _is_covered(self, upload: Upload) -> bool | None:
        """Whether the manifest covers all records of `upload`; None if it was deleted since it was listed."""
        topic = await self._topic(upload.shard, upload.topic_id)
        try:
            ends = await self._ends(upload.key)
        except NotFound:
            return None
        except Corrupt:
            return False
        return topic is not None and all(end <= topic.partition(number).cold_end for number, end in ends.items())

    async def _ends(self, key: str) -> Mapping[int, int]:
        """The end of each partition in the segment or list `key`. Raises `NotFound`, `Corrupt`."""
        if key.endswith(".json"):
            return cold_ends_in(key, (await self._store.get(key)).data)
        tail = (await self._store.get(key, ByteRange(-TAIL_BYTES))).data
        if (needed := footer_bytes(key, tail)) > len(tail):
            tail = (await self._store.get(key, ByteRange(-needed))).data
        return ends_in_header(key, decode_header(key, SEGMENT_FLAVOR, tail))


def _is_named(key: str, topic: TopicState | None, garbage: frozenset[str]) -> bool:
    if key in garbage:
        return True
    return topic is not None and (key in topic.segments or (topic.stored is not None and topic.stored.key == key))
