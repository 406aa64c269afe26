"""Schedules and runs the upkeep of the partitions of one shard, for its leader.

The manifests that the archiver and upkeep append say when a partition is due next, so an idle shard costs no request.
For a partition without such a manifest since the shard was opened, or whose topic's settings changed, the due time is
unknown until its manifest is read (`read_unknown`). That costs a request unless the partition is loaded, so callers do
it seldom.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic, upkeep_rules
from tidelog.services.broker.api.cluster import Damage
from tidelog.services.broker.shard.shard_partitions import ShardPartitions
from tidelog.services.broker.telemetry.damages import Damages
from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock
from tidelog.storage.upkeep.record_deletion import delete_records
from tidelog.storage.upkeep.task import Place
from tidelog.storage.upkeep.upkeep import Upkeep

PAUSE_AFTER_ERROR_MS = 60_000
"""The next try of a partition whose upkeep failed or whose manifest is damaged comes so much later."""


class UpkeepSchedule:
    """A queue of due times in ms since 1970 UTC, and the partitions whose due time is unknown. A partition takes some
    hundred bytes, so a broker can keep thousands whose manifests it does not hold."""

    def __init__(self) -> None:
        self._due_at_ms: dict[TopicPartition, int] = {}
        self._queue: list[tuple[int, TopicPartition]] = []
        self._unknown: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        """How many partitions are unknown or have a due time."""
        return len(self._unknown) + len(self._due_at_ms)

    @property
    def queued(self) -> int:
        """Entries in the queue, outdated ones included."""
        return len(self._queue)

    def set(self, topic_partition: TopicPartition, due_at_ms: int | None) -> None:
        """`due_at_ms` None: not due before its next manifest version."""
        self.forget(topic_partition)
        if due_at_ms is not None:
            self._due_at_ms[topic_partition] = due_at_ms
            heapq.heappush(self._queue, (due_at_ms, topic_partition))
            self._compact()

    def set_unknown(self, topic_partition: TopicPartition) -> None:
        """Its due time is not known any more."""
        self._due_at_ms.pop(topic_partition, None)
        self._unknown[topic_partition] = None

    def forget(self, topic_partition: TopicPartition) -> None:
        self._due_at_ms.pop(topic_partition, None)
        self._unknown.pop(topic_partition, None)

    def unknown(self) -> TopicPartition | None:
        """The partition that has been unknown for the longest time."""
        return next(iter(self._unknown), None)

    def first(self) -> tuple[int, TopicPartition] | None:
        """The earliest due time and its partition."""
        while self._queue and self._due_at_ms.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)  # outdated
        return self._queue[0] if self._queue else None

    def _compact(self) -> None:
        """Drop outdated entries before they outnumber the others."""
        if len(self._queue) > 2 * len(self._due_at_ms) + 16:
            self._queue = [(due_at_ms, place) for place, due_at_ms in self._due_at_ms.items()]
            heapq.heapify(self._queue)


class ShardUpkeep:
    """`upkeep` None: another process does the upkeep, and nothing is due here."""

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        partitions: ShardPartitions,
        upkeep: Upkeep | None,
        clock: Clock,
        damages: Damages,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._partitions = partitions
        self._upkeep = upkeep
        self._clock = clock
        self._damages = damages
        self._schedule = UpkeepSchedule()
        self._unscheduled: dict[TopicPartition, Manifest] = {}
        self._stepped: tuple[TopicPartition, ManifestLog] | None = None
        self._versions: dict[TopicPartition, int] = {}
        self._topics: dict[str, Topic] = {}
        self._revision = -1

    def archived(self, manifests: Sequence[Manifest]) -> None:
        if self._upkeep is not None:
            self._unscheduled.update((manifest.topic_partition, manifest) for manifest in manifests)

    def schedule_some(self, count: int) -> bool:
        """Compute the due times of at most `count` partitions with new manifests. Returns whether more are left. One
        takes tens of microseconds, and a pass of the archiver may append thousands."""
        while self._unscheduled and count > 0:
            _, manifest = self._unscheduled.popitem()
            self._schedule_by(manifest)
            count -= 1
        return bool(self._unscheduled)

    def due_since_ms(self) -> int | None:
        """Since when `step` has been due, in ms since 1970 UTC; None if it is not due."""
        first = self._schedule.first()
        return first[0] if first and first[0] <= self._clock.now_ms() else None

    def follow_topics(self) -> None:
        """Adopt the changes of the catalog: new partitions, changed settings, deleted topics."""
        if self._upkeep is None or self._revision == self._catalog.revision:
            return
        self._revision = self._catalog.revision
        topics = {topic.topic_id: topic for topic in self._catalog.list_topics()}
        for topic_id in self._topics.keys() - topics.keys():
            for place in self._here(self._topics[topic_id]):
                self._forget(place)
        for topic_id, topic in topics.items():
            if (known := self._topics.get(topic_id)) is not topic:
                self._follow(known, topic)
        self._topics = topics

    def reschedule_all(self) -> None:
        """Compute all due times again, because the wall clock was set."""
        for topic in self._topics.values():
            self._reschedule(self._here(topic))

    def _follow(self, known: Topic | None, topic: Topic) -> None:
        """`topic` is new here, or has changed since it was `known`."""
        known_here = set(self._here(known)) if known and known.config == topic.config else set()
        created_here = known is None and self._partitions.was_created_here(topic)
        if not created_here:
            self._reschedule(place for place in self._here(topic) if place not in known_here)

    def _reschedule(self, places: Iterable[TopicPartition]) -> None:
        """By the manifest if the partition is loaded; otherwise its manifest has to be read."""
        for place in places:
            if state := self._partitions.loaded(place):
                self._unscheduled[place] = state.manifest
            else:
                self._schedule.set_unknown(place)

    def _here(self, topic: Topic) -> Iterable[TopicPartition]:
        shard = self._partitions.wal.shard
        return (topic.partition(number) for number, lives_in in enumerate(topic.shards) if lives_in == shard)

    @property
    def has_unknown(self) -> bool:
        return self._schedule.unknown() is not None

    async def read_unknown(self) -> None:
        """Read the manifest of one partition whose due time is unknown: a LIST and a GET. Raises `Unavailable`."""
        place = self._schedule.unknown()
        topic = self._catalog.with_id(place.topic_id) if place else None
        if place is None:
            return
        if topic is None:
            self._forget(place)
            return
        try:
            manifest = await self._log(topic, place).latest()
        except Corrupt as fault:
            self._set_damaged(topic, place, fault)
            return
        self._partitions.measurements.cold.manifest_read(manifest)
        self._schedule_by(manifest)

    async def step(self) -> None:
        """One step of upkeep for the partition that is due first. Raises `Conflict`, `Unavailable`."""
        first = self._schedule.first()
        if self._upkeep is None or first is None:
            return
        place = first[1]
        topic = self._catalog.with_id(place.topic_id)
        if topic is None:
            self._forget(place)
            return
        self._schedule.set(place, self._clock.now_ms() + PAUSE_AFTER_ERROR_MS)
        log = self._log_of_step(topic, place)
        try:
            step = await self._upkeep.step(Place(topic.name, place), log, upkeep_rules(topic.config))
        except Corrupt as fault:
            self._set_damaged(topic, place, fault)
            return
        self._damages.replace(_finder(place), ())
        self._stepped = (place, log) if step.appended else None
        if step.appended:
            self._partitions.measurements.manifest_appended(step.manifest)
        self._apply(step.manifest)
        if step.manifest.version == self._versions.get(place):  # otherwise the archiver has appended a newer one
            self._schedule.set(place, step.due_at_ms)

    async def delete_records(self, topic: Topic, number: int, before_offset: int) -> None:
        """Set the log start of a partition to `before_offset`, which is cold. Raises `Conflict`, `Unavailable`."""
        self._apply(await delete_records(self._log(topic, topic.partition(number)), before_offset))

    def _apply(self, manifest: Manifest) -> None:
        state = self._partitions.loaded(manifest.topic_partition)
        if state and manifest.cold_end > state.high_watermark:
            return  # another broker leads the shard and has archived records that this one does not know
        self._partitions.apply_manifests((manifest,))
        self._schedule_by(manifest)

    def _schedule_by(self, manifest: Manifest) -> None:
        """Compute when its partition is due, unless a newer version passed through while this one was read."""
        place = manifest.topic_partition
        topic = self._catalog.with_id(place.topic_id)
        if self._upkeep is None or topic is None:
            self._forget(place)
        elif manifest.version >= self._versions.get(place, -1):
            self._versions[place] = manifest.version
            self._schedule.set(place, self._upkeep.due_at_ms(manifest, upkeep_rules(topic.config)))

    def _set_damaged(self, topic: Topic, place: TopicPartition, fault: Corrupt) -> None:
        """Upkeep found a damaged object: retry the partition later, and continue with the others."""
        self._schedule.set(place, self._clock.now_ms() + PAUSE_AFTER_ERROR_MS)
        where = (self._partitions.wal.shard, topic.name, place.partition)
        self._damages.replace(_finder(place), [Damage(fault.name, fault.reason, "Upkeep skips the partition", *where)])

    def _forget(self, place: TopicPartition) -> None:
        self._damages.forget(_finder(place))
        self._schedule.forget(place)
        self._unscheduled.pop(place, None)
        self._versions.pop(place, None)

    def _log_of_step(self, topic: Topic, place: TopicPartition) -> ManifestLog:
        """The log of the last step if that was for the same partition, because a long list of segments is slow to
        read."""
        stepped, self._stepped = self._stepped, None
        return stepped[1] if stepped and stepped[0] == place else self._log(topic, place)

    def _log(self, topic: Topic, place: TopicPartition) -> ManifestLog:
        return ManifestLog(self._store, topic.name, place, self._clock)


def _finder(place: TopicPartition) -> str:
    return f"upkeep of {place.topic_id}/{place.partition}"
