"""Maintains every topic of a bucket, shard by shard, in rounds.

The journal lists the topics and their shards. A compactor reads new entries of it before each round and never writes
it. Each round starts at a random shard, so that several compactors of one bucket seldom meet. If two do meet, one of
them finds a version that it did not make and starts over from that version (`upkeep`). A failure in one topic or shard
does not delay the others. A round over topics that no version has changed costs one request a shard.

    compactor = Compactor(store, journal, upkeep, build_collector, runtime)
    async for appended in compactor.round():
        print(appended.topic, appended.shard, appended.version)
    compactor.report.failures
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, field

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic, upkeep_rules
from tidelog.storage.bucket.listing import shards_in
from tidelog.storage.errors import Conflict, Corrupt, Invalid, TidelogError
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.collect import Collector
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.task import TopicInShard
from tidelog.storage.upkeep.upkeep import Upkeep

STEPS_A_VISIT_MAX = 8
"""Steps in one visit. A topic with more work waits for the next round, so that the others get their turn."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Appended:
    """A manifest version that this compactor wrote. `segments` and `size_bytes` are those of the topic in the shard
    now. A version that collects garbage has no topic; `removed` counts the objects."""

    topic: str
    shard: int
    version: int
    change: str
    removed: int
    added: int
    segments: int
    size_bytes: int


@dataclass
class RoundReport:
    """The results of a round. `topics`: visits, one for each topic and shard. `due_at_ms` is when the first has work
    again; None: not before it changes."""

    topics: int = 0
    versions: int = 0
    failures: int = 0
    damaged: int = 0
    due_at_ms: int | None = None


@dataclass(frozen=True)
class _Visited:
    """A topic as it was last visited, and when it is due."""

    state: TopicState
    rules: UpkeepRules
    due_at_ms: int | None


@dataclass(frozen=True)
class _Shard:
    log: ShardLog
    collector: Collector
    visited: dict[str, _Visited] = field(default_factory=dict)


class Compactor:
    """Maintains the topics named by `topics`; empty: all, and the garbage of all shards. Raises `Unavailable` and
    `Corrupt` of the journal."""

    def __init__(
        self,
        store: ObjectStore,
        journal: Journal,
        upkeep: Upkeep,
        new_collector: Callable[[Catalog], Collector],
        runtime: Runtime,
        topics: Collection[str] = (),
    ) -> None:
        self._store = store
        self._journal = journal
        self._catalog = Catalog(journal, runtime)
        self._upkeep = upkeep
        self._new_collector = new_collector
        self._runtime = runtime
        self._names = frozenset(topics)
        self._shards: dict[int, _Shard] = {}
        self.report = RoundReport()

    async def open(self) -> None:
        """Read the topics and find the shards. Raises `Invalid` if one of the named topics does not exist."""
        await self._journal.open()
        known = {topic.name for topic in self._catalog.list_topics()}
        if missing := sorted(self._names - known):
            raise Invalid(f"the bucket has no topic {missing[0]!r}", field="topic")
        self._add_shards(await shards_in(self._store))

    async def round(self) -> AsyncIterator[Appended]:
        """Visit every topic once, and yield each version written. `report` has the results afterwards."""
        self.report = RoundReport()
        await self._journal.catch_up()
        self._add_shards(shard for topic in self._catalog.list_topics() for shard in topic.shards)
        shards = list(self._shards.values())
        start = int(self._runtime.entropy.uniform(0, len(shards)))
        for shard in shards[start:] + shards[:start]:
            async for appended in self._visit_shard(shard):
                self.report.versions += 1
                yield appended

    def _add_shards(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number not in self._shards:
                log = ShardLog(self._store, number, self._runtime)
                self._shards[number] = _Shard(log, self._new_collector(self._catalog))

    async def _visit_shard(self, shard: _Shard) -> AsyncIterator[Appended]:
        try:
            manifest = await shard.log.newest()
        except TidelogError as error:
            self._note_failure(f"shard {shard.log.shard}", error)
            return
        for topic_id in manifest.topics:
            topic = self._catalog.with_id(topic_id)
            if topic and (not self._names or topic.name in self._names):
                self.report.topics += 1
                async for appended in self._visit(shard, topic):
                    yield appended
        if not self._names and (collected := await self._collect(shard)):
            yield collected

    async def _visit(self, shard: _Shard, topic: Topic) -> AsyncIterator[Appended]:
        place, rules = SegmentPlace(topic.name, topic.topic_id, shard.log.shard), upkeep_rules(topic.config)
        try:
            due_at_ms = await self._due_at_ms(shard, place, rules)
            for _ in range(STEPS_A_VISIT_MAX):
                if due_at_ms is None or due_at_ms > self._runtime.clock.now_ms():
                    break
                step = await self._upkeep.step(place, shard.log, rules)
                due_at_ms = step.due_at_ms
                if step.appended:
                    yield _appended(place, step.manifest)
            self._note_due(due_at_ms)
        except Conflict:
            self._note_due(self._runtime.clock.now_ms())  # another worker is active here; retry in the next round
        except TidelogError as error:
            self._note_failure(f"topic {topic.name} in shard {shard.log.shard}", error)

    async def _due_at_ms(self, shard: _Shard, place: SegmentPlace, rules: UpkeepRules) -> int | None:
        """When a topic is due. Its list is read only if the topic or its rules have changed."""
        manifest = shard.log.known or await shard.log.newest()
        state, known = manifest.topics.get(place.topic_id), shard.visited.get(place.topic_id)
        if state is None:
            return None
        if known and known.rules == rules and not state.changed_since(known.state):
            return known.due_at_ms
        manifest = await shard.log.with_lists(manifest, [place.topic_id])
        due_at_ms = self._upkeep.due_at_ms(TopicInShard(place, manifest), rules)
        shard.visited[place.topic_id] = _Visited(state, rules, due_at_ms)
        return due_at_ms

    async def _collect(self, shard: _Shard) -> Appended | None:
        """Delete ripe garbage and old versions of a shard."""
        try:
            manifest = shard.log.known or await shard.log.newest()
            now_ms = self._runtime.clock.now_ms()
            due_at_ms = shard.collector.due_at_ms(manifest, now_ms)
            if due_at_ms is None or due_at_ms > now_ms:
                self._note_due(due_at_ms)
                return None
            return _collected(await shard.collector.run(shard.log))
        except Conflict:
            self._note_due(self._runtime.clock.now_ms())
        except TidelogError as error:
            self._note_failure(f"the garbage of shard {shard.log.shard}", error)
        return None

    def _note_due(self, at_ms: int | None) -> None:
        if at_ms is not None:
            self.report.due_at_ms = at_ms if self.report.due_at_ms is None else min(at_ms, self.report.due_at_ms)

    def _note_failure(self, place: str, error: TidelogError) -> None:
        self.report.failures += 1
        self.report.damaged += isinstance(error, Corrupt)
        _log.warning("skipped %s: %s", place, error)


def _appended(place: SegmentPlace, manifest: ShardManifest) -> Appended:
    change = manifest.change
    assert change is not None, "this process appended it"
    changed, totals = change.topics[place.topic_id], manifest.topics[place.topic_id].totals
    return Appended(
        topic=place.topic,
        shard=manifest.shard,
        version=manifest.version,
        change=change.kind.value,
        removed=len(changed.removed),
        added=len(changed.added),
        segments=totals.segments,
        size_bytes=totals.size_bytes,
    )


def _collected(manifest: ShardManifest | None) -> Appended | None:
    if manifest is None or manifest.change is None:
        return None
    totals = [topic.totals for topic in manifest.topics.values()]
    return Appended(
        topic="",
        shard=manifest.shard,
        version=manifest.version,
        change=manifest.change.kind.value,
        removed=len(manifest.change.collected),
        added=0,
        segments=sum(each.segments for each in totals),
        size_bytes=sum(each.size_bytes for each in totals),
    )
