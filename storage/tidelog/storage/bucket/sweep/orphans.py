"""Which uploads no manifest names, and the version after which none ever will (`bucket_sweep`).

An upload is a segment or a topic's list. It is an orphan if the newest manifest names it neither in a list nor as
garbage, and if the manifest covers its records, which its header tells (one request). Others are left alone:

- a segment of a pass that crashed holds records that are still in the WAL and will be archived;
- an object with records beyond the cold ends may also mean that the newest version was lost. Then it may be the only
  copy of these records, and `tidelog bucket repair` needs it.

The manifest of a shard is read once, and the list of a topic once for all pages of the listing that it has.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from tidelog.storage.bucket.finding import UNREADABLE, Finding, unreadable, warning
from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge
from tidelog.storage.bucket.listing import SegmentPage, grouped, list_segments, shards_in
from tidelog.storage.bucket.segment_reading import records_beyond
from tidelog.storage.bucket.shard_look import ShardLooks, TopicLook
from tidelog.storage.bucket.topic_walk import TopicWalk
from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import TOPICS_PREFIX, lists_prefix, topic_id_of_list, topic_prefix
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace

READS_AT_ONCE = 16
NO_SHARD = -1
DOUBTS_MAX = 16
"""After so many doubtful objects of a page, the rest of it is not read: each costs a request."""


_BEYOND = (
    "no manifest names it, and the manifest of its shard does not cover its records: `tidelog bucket verify` says why"
)


@dataclass(frozen=True)
class Upload:
    """A listed segment or list. `place.shard` is `NO_SHARD` for another object in a topic's folder; `place.topic` is
    empty for a list, whose key has only the id."""

    place: SegmentPlace
    info: ObjectInfo


class OrphanSearch:
    """One search. `is_ripe` tells whether an object is old enough to be judged; `leave` is called with each object or
    folder that is left alone, and why."""

    def __init__(
        self,
        store: ObjectStore,
        topics: TopicKnowledge,
        runtime: Runtime,
        is_ripe: Callable[[ObjectInfo], Awaitable[bool]],
        leave: Callable[[Finding], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._looks = ShardLooks(store, runtime)
        self._is_ripe = is_ripe
        self._leave = leave
        self._known: Mapping[str, KnownTopic] = {}
        self._deleted_ids: set[str] = set()

    async def orphans(self, *, pages_at_once: int) -> AsyncGenerator[Sequence[Upload], None]:
        """The orphans of each page of the listing. Raises `Unavailable`; `Corrupt` if the journal cannot be read."""
        walk = TopicWalk(self._looks, self._begin, self._judged, self._judged_other, at_once=pages_at_once)
        async with aclosing(walk.over(self._listed())) as judged:
            async for _, orphans in judged:
                yield orphans

    def is_deleted(self, upload: Upload) -> bool:
        """Whether the journal says that its topic was deleted."""
        return upload.place.topic_id in self._deleted_ids

    async def fenced(self, shard: int, uploads: Sequence[Upload]) -> Sequence[Upload]:
        """Append a version after which no worker can name `uploads`, which are of any topics; returns those that are
        still unnamed. Returns none if other workers append faster: a later sweep finds them again. Raises `Corrupt`,
        `NewerFormat`."""
        still: list[Upload] = []

        def plan(manifest: ShardManifest) -> ManifestChange | None:
            nonlocal still
            garbage = frozenset(each.key for each in manifest.garbage)
            topics = {topic_id: TopicLook(state, garbage) for topic_id, state in manifest.topics.items()}
            gone = TopicLook(None, garbage)
            still = [each for each in uploads if not topics.get(each.place.topic_id, gone).names(each.info.key)]
            return ManifestChange(ChangeKind.SWEEP) if still else None

        try:
            await self._looks(shard).log.change({upload.place.topic_id for upload in uploads}, plan)
        except Conflict:
            return ()
        return still

    async def _listed(self) -> AsyncIterator[SegmentPage | ObjectInfo]:
        """All segments, and the lists that no manifest names, each time those of one topic and shard."""
        async for page in list_segments(self._store):
            yield page
        try:
            shards = await shards_in(self._store)
        except Corrupt as fault:  # foreign folders
            self._leave(unreadable(fault))
            return
        for shard in shards:
            look = self._looks(shard)
            manifest = look.manifest or await look.refresh()
            named = look.lists | look.garbage if manifest else frozenset()
            async for topic_id, infos in grouped(list_all(self._store, lists_prefix(shard)), topic_id_of_list):
                if topic_id and (unnamed := tuple(info for info in infos if info.key not in named)):
                    yield SegmentPage(SegmentPlace("", topic_id, shard), unnamed)

    async def _begin(self, place: SegmentPlace) -> TopicLook | None:
        """The topic in the newest manifest; None if its uploads are left alone."""
        look = self._looks(place.shard)
        if not await self._is_judgeable(place):
            return None
        try:
            topic = await look.topic(place.topic_id)
        except UNREADABLE as fault:
            self._leave(unreadable(fault))
            return None
        if topic is None and look.fault:
            self._leave(look.fault)
        return topic

    async def _judged(self, page: SegmentPage, topic: TopicLook | None) -> Sequence[Upload]:
        if topic is None:
            return ()
        unnamed = [info for info in page.infos if not topic.names(info.key)]
        ripe = [Upload(page.place, info) for info in unnamed if await self._is_ripe(info)]
        if page.place.topic_id in self._deleted_ids:
            return ripe
        return await self._covered(ripe, topic)

    async def _judged_other(self, info: ObjectInfo) -> Sequence[Upload]:
        """Another object in a topic's folder is an orphan if the topic was deleted."""
        parts = info.key.removeprefix(TOPICS_PREFIX).split("/", 2)
        if len(parts) < 3:
            return ()
        upload = Upload(SegmentPlace(parts[0], parts[1], NO_SHARD), info)
        return [upload] if await self._is_judgeable(upload.place) and await self._is_ripe(info) else ()

    async def _is_judgeable(self, place: SegmentPlace) -> bool:
        """Whether the topic is known, or is known to be deleted. The journal is read after the listing, so it knows
        every topic that has objects."""
        topic_id = place.topic_id
        if topic_id not in self._known and topic_id not in self._deleted_ids:
            self._known = await self._topics.topics()
            if topic_id not in self._known:
                self._deleted_ids.update(await self._topics.deleted([topic_id]))
        topic, folder = self._known.get(topic_id), _folder(place)
        if topic is None:
            if topic_id not in self._deleted_ids:
                self._leave(warning(folder, "the journal does not know this topic"))
            return topic_id in self._deleted_ids
        if place.topic not in ("", topic.name):
            self._leave(warning(folder, f"the journal calls this topic {topic.name!r}"))
            return False
        return not topic.removing and place.shard != NO_SHARD

    async def _covered(self, uploads: Sequence[Upload], topic: TopicLook) -> list[Upload]:
        """Those of the unnamed `uploads` whose records the manifest covers."""

        async def is_beyond(upload: Upload) -> bool | Finding | None:
            """None if it was deleted since it was listed."""
            try:
                return await records_beyond(self._store, upload.info.key, topic.state)
            except NotFound:
                return None
            except UNREADABLE as fault:
                return unreadable(fault)

        covered: list[Upload] = []
        doubts: list[Finding] = []
        async with aclosing(in_order(uploads, is_beyond, at_once=READS_AT_ONCE)) as read:
            async for upload, beyond in read:
                if beyond is False:
                    covered.append(upload)
                elif beyond is not None:
                    doubts.append(beyond if isinstance(beyond, Finding) else warning(upload.info.key, _BEYOND))
                if len(doubts) == DOUBTS_MAX:
                    break
        if doubts:
            text = f"{doubts[0].text} ({len(doubts)} objects of its topic, or more, cannot be judged)"
            self._leave(warning(doubts[0].key, text))
        return covered


def _folder(place: SegmentPlace) -> str:
    return topic_prefix(place.topic, place.topic_id) if place.topic else lists_prefix(place.shard)
