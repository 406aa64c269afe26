"""Checks the topics of a bucket against the journal, and makes the judgements that need the whole walk: whether records
lie beyond the end of their log, and whether the manifests of a partition are lost.

A topic may be created or deleted during the walk. Objects of a topic that is being deleted vanish in any order, so
faults of such objects do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from tidelog.storage.bucket.finding import UNREADABLE, Finding, Report, Seen, Severity, error, warning
from tidelog.storage.bucket.known_topics import JournalView, TopicKnowledge, journal_view
from tidelog.storage.bucket.segment_reading import records_beyond
from tidelog.storage.bucket.shard_look import ShardLook
from tidelog.storage.bucket.verify.verify_state import Suspicion, WalkState
from tidelog.storage.bucket.verify.wal_check import Stretch, TopicWal, check_wals
from tidelog.storage.errors import NotFound
from tidelog.storage.layout import TopicPartition, topic_prefix
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

_UNKNOWN = "that the journal does not know: it lost entries, or belongs to another bucket"


class TopicCheck:
    """Accompanies one walk. Without `topics`, no topic counts as deleted, and nothing is compared with the journal."""

    def __init__(self, store: ObjectStore, runtime: Runtime, topics: TopicKnowledge | None) -> None:
        self._store = store
        self._runtime = runtime
        self._topics = topics

    def unless_deleted(self, topic_id: str, report: Report) -> Report:
        """`report`, except for errors about a topic that was deleted meanwhile."""

        async def filtered(seen: Seen) -> None:
            wrong = isinstance(seen, Finding) and seen.severity is Severity.ERROR
            if not (wrong and await self._is_deleted(topic_id)):
                await report(seen)

        return filtered

    async def close(self, state: WalkState, report: Report) -> None:
        """Report the findings that need the whole walk."""
        await self._judge(state.suspects, report)
        view = await self._view(state.wal.keys() | state.seen.keys())
        for topic_id, wal in state.wal.items():
            for number, stretch in wal.stretches.items():
                for finding in _wal_findings(TopicPartition(topic_id, number), stretch, view):
                    await report(finding)
        if view is not None:
            for topic_id, names in state.seen.items():
                for name, partition in names.items():
                    for finding in _topic_findings(name, topic_id, partition, view):
                        await report(finding)

    async def _view(self, topic_ids: Set[str]) -> JournalView | None:
        """None if there is no journal to ask, or it cannot be read, which the journal's own check reports."""
        try:
            return await journal_view(self._topics, topic_ids) if self._topics else None
        except (*UNREADABLE, NotFound):
            return None

    async def _is_deleted(self, topic_id: str) -> bool:
        view = await self._view({topic_id})
        return view is not None and view.is_deleted(topic_id)

    async def _judge(self, suspects: list[Suspicion], report: Report) -> None:
        """Judge orphans that seemed to hold more than their log: read the logs again, then the manifests."""
        if not suspects:
            return
        wal = await check_wals(self._store, self._runtime, _ignore)
        for suspect in suspects:
            place, key = suspect.place, suspect.finding.key
            look = ShardLook(self._store, place.shard, self._runtime)
            try:
                topic = await look.topic(place.topic_id)
                if topic and topic.segment(key):
                    continue
                state = topic.state if topic else None
                beyond = await records_beyond(self._store, key, state, wal.get(place.topic_id, TopicWal()).ends)
            except (*UNREADABLE, NotFound):
                continue  # reported already; or deleted, so it was no orphan
            if beyond and not await self._is_deleted(place.topic_id):
                text = (
                    f"holds records of {place.topic} beyond its end according to {look.key} and the WAL: the manifest "
                    "that named it is lost (inv. 5)"
                )
                await report(replace(suspect.finding, severity=Severity.ERROR, text=text))
            else:
                await report(suspect.finding)


async def _ignore(_seen: Seen) -> None:
    """The report of a second walk, whose findings are known already."""


def _wal_findings(place: TopicPartition, stretch: Stretch, view: JournalView | None) -> Iterator[Finding]:
    """The findings about a partition's records in the WAL. A partition that no manifest has must begin at offset 0,
    unless its topic was deleted."""
    if view is not None and view.is_deleted(place.topic_id):
        return
    topic = view.topics.get(place.topic_id) if view is not None else None
    begins = f"begins at offset {stretch.base_offset} of {place.topic_id}/{place.partition}, which no manifest has"
    late = stretch.base_offset > 0 and not stretch.met
    if topic is None:
        if late:
            yield warning(stretch.key, f"{begins}: its topic was deleted, or its manifests are lost")
        elif view is not None:
            yield error(stretch.key, f"holds records of a topic {place.topic_id} {_UNKNOWN}")
        return
    if late:
        yield error(stretch.key, f"{begins}: the manifests of {topic.name} are lost (inv. 5)")
    if place.partition >= len(topic.shards):
        yield error(stretch.key, f"holds partition {place.partition} of {topic.name}, which has {len(topic.shards)}")
    elif topic.shards[place.partition] != stretch.shard:
        shard = topic.shards[place.partition]
        yield error(stretch.key, f"holds {topic.name}-{place.partition}, which lives in shard {shard}")


def _topic_findings(name: str, topic_id: str, partition: int, view: JournalView) -> Iterator[Finding]:
    """The findings about the folder of a topic. `partition` is the highest one in it."""
    topic, prefix = view.topics.get(topic_id), topic_prefix(name, topic_id)
    if topic_id in view.deleted:
        yield Finding(Severity.ORPHAN, prefix, "is a topic that was deleted")
    elif topic is None:
        yield error(prefix, f"is a topic {_UNKNOWN}")
    elif topic.name != name:
        yield error(prefix, f"belongs to topic {topic.name!r} by its id (inv. 5)")
    elif not topic.removing and partition >= len(topic.shards):
        yield error(prefix, f"has a partition {partition}; in the journal it has {len(topic.shards)}")
