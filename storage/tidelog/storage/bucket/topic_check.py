"""Checks what lies under ``topics/`` against what the journal knows, and settles at the end of a walk what could not be
told before: whether records lie beyond the end of their log, and whether a log begins where its manifests are missing.

A topic may be created or deleted while it is looked at. Objects of one that is being deleted vanish in any order, so
nothing that is wrong with them counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from tidelog.storage.bucket.finding import Finding, Seen, Severity
from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge
from tidelog.storage.bucket.partition_check import Tell, beyond_end
from tidelog.storage.bucket.verify_state import Suspicion, WalkState
from tidelog.storage.bucket.wal_check import Stretch
from tidelog.storage.bucket.wal_walk import WalWalk
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import TopicPartition, topic_prefix
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore

Stretches = Mapping[TopicPartition, Stretch]
_UNHEARD = "of which the journal never heard: entries of it are lost, or it is another bucket's"


@dataclass(frozen=True)
class _Known:
    """What the journal says of the topics in question."""

    topics: Mapping[str, KnownTopic]
    gone: frozenset[str]

    def is_deleted(self, topic_id: str) -> bool:
        topic = self.topics.get(topic_id)
        return topic_id in self.gone if topic is None else topic.removing


class TopicCheck:
    """Beside one walk. Without `topics`, every topic counts as one that is there and nobody knows."""

    def __init__(self, store: ObjectStore, topics: TopicKnowledge | None) -> None:
        self._store = store
        self._topics = topics

    def unless_deleted(self, topic_id: str, tell: Tell) -> Tell:
        """`tell`, but for errors about a topic that was deleted meanwhile."""

        async def told(seen: Seen) -> None:
            wrong = isinstance(seen, Finding) and seen.severity is Severity.ERROR
            if not (wrong and await self._is_deleted(topic_id)):
                await tell(seen)

        return told

    async def closing(self, state: WalkState, wal: Stretches) -> AsyncIterator[Seen]:
        """What can be told once everything was looked at."""
        async for finding in self._settled(state.suspects):
            yield finding
        known = await self._known({place.topic_id for place in wal} | state.seen.keys())
        for place, stretch in wal.items():
            for finding in _wal_findings(place, stretch, known, met=place in state.met):
                yield finding
        if known is not None:
            for finding in _folder_findings(state, known):
                yield finding

    async def _known(self, topic_ids: Set[str]) -> _Known | None:
        """None if there is no journal to ask, or none that can be read, which its own check tells."""
        if self._topics is None:
            return None
        try:
            topics = await self._topics.topics()
            unheard = topic_ids - topics.keys()
            return _Known(topics, frozenset(await self._topics.deleted(unheard) if unheard else ()))
        except (Corrupt, NotFound):
            return None

    async def _is_deleted(self, topic_id: str) -> bool:
        known = await self._known({topic_id})
        return known is not None and known.is_deleted(topic_id)

    async def _settled(self, suspects: list[Suspicion]) -> AsyncIterator[Finding]:
        """Orphans that seemed to hold more than their log: the logs once more, then the manifests."""
        if not suspects:
            return
        walk = WalWalk(self._store)
        async for _ in walk.findings():
            pass
        for suspect in suspects:
            place, key = suspect.place, suspect.finding.key
            log = ManifestLog(self._store, suspect.topic, place)
            try:
                manifest = await log.latest()
                await self._store.head(key)
            except (Corrupt, NotFound):
                continue  # told already, or gone: it was no orphan then
            if key in {segment.key for segment in manifest.segments}:
                continue
            lost = beyond_end(key, manifest, walk.stretches.get(place)) and not await self._is_deleted(place.topic_id)
            text = (
                f"holds records beyond the end of {suspect.topic}-{place.partition}, which {log.key(manifest.version)} "
                "and the WAL tell: the manifest that named it is lost (inv. 5)"
                if manifest.version >= 0
                else f"holds records of {suspect.topic}-{place.partition}, whose manifests are lost (inv. 5)"
            )
            yield replace(suspect.finding, severity=Severity.ERROR, text=text) if lost else suspect.finding


def _wal_findings(place: TopicPartition, stretch: Stretch, known: _Known | None, *, met: bool) -> Iterator[Finding]:
    """About records in the WAL; `met`: their partition has objects under ``topics/`` too, with which they were
    compared. Without any it begins at offset 0, unless its topic was deleted and they wait to be let go of."""
    if known is not None and known.is_deleted(place.topic_id):
        return
    topic = known.topics.get(place.topic_id) if known is not None else None
    begins = f"begins at offset {stretch.base_offset} of {place.topic_id}/{place.partition}, which has no manifest"
    late = stretch.base_offset > 0 and not met
    if topic is None:
        if late:
            text = f"{begins}: its topic was deleted, or its manifests are lost"
            yield Finding(Severity.WARNING, stretch.key, text)
        elif known is not None:
            text = f"holds records of topic {place.topic_id}, {_UNHEARD}"
            yield Finding(Severity.ERROR, stretch.key, text)
        return
    if late:
        yield Finding(Severity.ERROR, stretch.key, f"{begins}: the manifests of {topic.name} are lost (inv. 5)")
    if place.partition >= len(topic.shards):
        text = f"holds partition {place.partition} of {topic.name}, which has {len(topic.shards)}"
        yield Finding(Severity.ERROR, stretch.key, text)
    elif topic.shards[place.partition] != stretch.shard:
        text = f"holds {topic.name}-{place.partition}, which lives in shard {topic.shards[place.partition]}"
        yield Finding(Severity.ERROR, stretch.key, text)


def _folder_findings(state: WalkState, known: _Known) -> Iterator[Finding]:
    for topic_id, names in state.seen.items():
        for name, partition in names.items():
            yield from _topic_findings(name, topic_id, partition, known)


def _topic_findings(name: str, topic_id: str, partition: int, known: _Known) -> Iterator[Finding]:
    """About the folder of a topic, in which `partition` is the highest there is."""
    topic, prefix = known.topics.get(topic_id), topic_prefix(name, topic_id)
    if topic_id in known.gone:
        yield Finding(Severity.ORPHAN, prefix, "is a topic that was deleted")
    elif topic is None:
        yield Finding(Severity.ERROR, prefix, f"is a topic {_UNHEARD}")
    elif topic.name != name:
        yield Finding(Severity.ERROR, prefix, f"belongs to topic {topic.name!r} by its id (inv. 5)")
    elif not topic.removing and partition >= len(topic.shards):
        yield Finding(Severity.ERROR, prefix, f"has a partition {partition}, the journal says {len(topic.shards)}")
