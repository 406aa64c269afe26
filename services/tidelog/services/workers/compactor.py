"""Maintains every partition of a bucket, one after the other, in rounds.

The journal lists the partitions. A compactor reads new entries of it before each round and never writes it. Each round
starts at a random partition, so that several compactors of one bucket seldom meet. If two do meet, one of them finds a
version that it did not make and starts over from that version (`upkeep`). A failure in one partition does not delay the
others.

    compactor = Compactor(store, upkeep, runtime)
    async for step in compactor.round():
        print(step.topic, step.partition, step.manifest.version)
    compactor.report.failures
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic, upkeep_rules
from tidelog.storage.errors import Conflict, Corrupt, Invalid, TidelogError
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.upkeep.task import Place
from tidelog.storage.upkeep.upkeep import Upkeep

STEPS_A_VISIT_MAX = 8
"""Steps in one visit. A partition with more work waits for the next round, so that the others get their turn."""
LOGS_MAX = 10_000
"""Manifests that are kept between rounds. A visit to any other partition costs one more GET."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Appended:
    """A manifest version that this compactor wrote. `segments` and `size_bytes` are those of the partition now."""

    topic: str
    partition: int
    version: int
    change: str
    removed: int
    added: int
    segments: int
    size_bytes: int


@dataclass
class RoundReport:
    """The results of a round. `due_at_ms` is when the first partition has work again; None: not before it changes."""

    partitions: int = 0
    versions: int = 0
    failures: int = 0
    damaged: int = 0
    due_at_ms: int | None = None


class Compactor:
    """Maintains the topics named by `topics`; empty: all. Raises `Unavailable` and `Corrupt` of the journal."""

    def __init__(
        self, store: ObjectStore, journal: Journal, upkeep: Upkeep, runtime: Runtime, topics: Collection[str] = ()
    ) -> None:
        self._store = store
        self._journal = journal
        self._catalog = Catalog(journal, runtime)
        self._upkeep = upkeep
        self._runtime = runtime
        self._names = frozenset(topics)
        self._logs: OrderedDict[TopicPartition, ManifestLog] = OrderedDict()
        self.report = RoundReport()

    async def open(self) -> None:
        """Read the topics. Raises `Invalid` if one of the named topics does not exist."""
        await self._journal.open()
        known = {topic.name for topic in self._catalog.list_topics()}
        if missing := sorted(self._names - known):
            raise Invalid(f"the bucket has no topic {missing[0]!r}", field="topic")

    async def round(self) -> AsyncIterator[Appended]:
        """Visit every partition once, and yield each version written. `report` has the results afterwards."""
        self.report = RoundReport()
        await self._journal.catch_up()
        for topic, number in self._partitions():
            self.report.partitions += 1
            async for appended in self._visit(topic, number):
                self.report.versions += 1
                yield appended

    async def _visit(self, topic: Topic, number: int) -> AsyncIterator[Appended]:
        place, rules = Place(topic.name, topic.partition(number)), upkeep_rules(topic.config)
        try:
            log = self._manifest_log(place)
            for _ in range(STEPS_A_VISIT_MAX):
                step = await self._upkeep.step(place, log, rules)
                if not step.appended:
                    break
                yield _appended(place, step.manifest)
            self._note_due(step.due_at_ms)
        except Conflict:
            self._note_due(self._runtime.clock.now_ms())  # another worker is active here; retry in the next round
        except TidelogError as error:
            self._note_failure(place, error)

    def _partitions(self) -> list[tuple[Topic, int]]:
        topics = [topic for topic in self._catalog.list_topics() if not self._names or topic.name in self._names]
        found = [(topic, number) for topic in topics for number in range(topic.partition_count)]
        start = int(self._runtime.entropy.uniform(0, len(found)))
        return found[start:] + found[:start]

    def _manifest_log(self, place: Place) -> ManifestLog:
        log = self._logs.pop(place.topic_partition, None)
        log = log or ManifestLog(self._store, place.topic, place.topic_partition, self._runtime.clock)
        self._logs[place.topic_partition] = log
        while len(self._logs) > LOGS_MAX:
            self._logs.popitem(last=False)
        return log

    def _note_due(self, at_ms: int | None) -> None:
        if at_ms is not None:
            self.report.due_at_ms = at_ms if self.report.due_at_ms is None else min(at_ms, self.report.due_at_ms)

    def _note_failure(self, place: Place, error: TidelogError) -> None:
        self.report.failures += 1
        self.report.damaged += isinstance(error, Corrupt)
        fields = {"topic": place.topic, "partition": place.topic_partition.partition}
        _log.warning("a partition was skipped: %s", error, extra={"fields": fields})


def _appended(place: Place, manifest: Manifest) -> Appended:
    change = manifest.change
    assert change is not None, "every version records its change"
    return Appended(
        topic=place.topic,
        partition=place.topic_partition.partition,
        version=manifest.version,
        change=change.kind.value,
        removed=len(change.removed),
        added=len(change.added),
        segments=len(manifest.segments),
        size_bytes=manifest.size_bytes,
    )
