"""Schedules and runs the upkeep of the topics of one shard, for its leader.

Each version of the shard's manifest passes through here (`adopt`). It says when a topic that it changed is due next, so
an idle shard costs no request. If the list of such a topic was not read, or the topic has not been looked at since the
shard was opened, its due time is unknown until its list is read (`read_unknown`). That costs a request, so callers do
it seldom.

Steps of different topics may run side by side; each topic has one at a time. Garbage and old versions belong to the
whole shard (`collect`).
"""

from __future__ import annotations

from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic, upkeep_rules
from tidelog.services.broker.shard.shard_partitions import ShardPartitions
from tidelog.services.broker.shard.upkeep_schedule import UpkeepSchedule
from tidelog.services.broker.telemetry.damages import Damages, damage_of
from tidelog.services.broker.telemetry.measurements import Measurements
from tidelog.storage.errors import Corrupt, NewerFormat
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.runtime import Clock
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.collect import Collector
from tidelog.storage.upkeep.log_starts import delete_records
from tidelog.storage.upkeep.task import TopicInShard
from tidelog.storage.upkeep.upkeep import Step, Upkeep

PAUSE_AFTER_ERROR_MS = 60_000
"""The next try of a topic whose upkeep failed or whose list is damaged comes so much later."""


class ShardUpkeep:
    """`work` None: another process does the upkeep, and nothing is due here."""

    def __init__(
        self,
        partitions: ShardPartitions,
        catalog: Catalog,
        work: tuple[Upkeep, Collector] | None,
        measurements: Measurements,
        clock: Clock,
        damages: Damages,
    ) -> None:
        self.shard = partitions.wal.shard
        self._partitions = partitions
        self._log = partitions.log
        self._catalog = catalog
        self._upkeep = work[0] if work else None
        self._collector = work[1] if work else None
        self._measurements = measurements
        self._clock = clock
        self._damages = damages
        self._schedule = UpkeepSchedule()
        self._unscheduled: dict[str, None] = {}
        self._manifest: ShardManifest | None = None
        self._collect_at_ms: int | None = None
        self._topics: dict[str, Topic] = {}
        self._revision = -1

    def adopt(self, manifest: ShardManifest) -> None:
        """Note `manifest`, unless a newer version passed through before."""
        before = self._manifest
        if self._upkeep is None or self._collector is None or (before and before.version >= manifest.version):
            return
        self._manifest = manifest
        self._collect_at_ms = self._collector.due_at_ms(manifest, self._clock.now_ms())
        known = before.topics if before else {}
        for topic_id, topic in manifest.topics.items():
            if topic.changed_since(known.get(topic_id)):
                self._unscheduled[topic_id] = None
        for topic_id in known.keys() - manifest.topics.keys():
            self._forget(topic_id)

    def schedule_some(self, count: int) -> bool:
        """Compute the due times of at most `count` topics that a version changed. Returns whether more are left. One
        takes tens of microseconds, and a pass of the archiver may change thousands."""
        while self._unscheduled and count > 0:
            topic_id, _ = self._unscheduled.popitem()
            self._schedule_by_manifest(topic_id)
            count -= 1
        return bool(self._unscheduled)

    def due_since_ms(self) -> int | None:
        """Since when `step` has been due, in ms since 1970 UTC; None if it is not due."""
        first = self._schedule.first()
        return first[0] if first and first[0] <= self._clock.now_ms() else None

    @property
    def collecting_is_due(self) -> bool:
        return self._collect_at_ms is not None and self._collect_at_ms <= self._clock.now_ms()

    def follow_topics(self) -> None:
        """Adopt the changes of the catalog: changed settings, deleted topics."""
        if self._upkeep is None or self._revision == self._catalog.revision:
            return
        self._revision = self._catalog.revision
        topics = {topic.topic_id: topic for topic in self._catalog.list_topics() if self.shard in topic.shards}
        for topic_id in self._topics.keys() - topics.keys():
            self._forget(topic_id)
        for topic_id, topic in topics.items():
            known = self._topics.get(topic_id)
            if known is None or known.config != topic.config:
                self._unscheduled[topic_id] = None
        self._topics = topics

    def reschedule_all(self) -> None:
        """Compute all due times again, because the wall clock was set."""
        self._unscheduled.update(dict.fromkeys(self._topics))
        if self._manifest and self._collector:
            self._collect_at_ms = self._collector.due_at_ms(self._manifest, self._clock.now_ms())

    @property
    def has_unknown(self) -> bool:
        """Whether a request has to be made to learn when upkeep is due."""
        return self._upkeep is not None and (self._manifest is None or self._schedule.unknown() is not None)

    async def read_unknown(self) -> None:
        """Read the manifest of the shard, or the list of one topic whose due time is unknown. Raises `Unavailable`,
        and `Corrupt` if the manifest is damaged."""
        if self._manifest is None:
            await self._apply(self._log.known or await self._log.latest())
            return
        topic_id = self._schedule.unknown()
        if topic_id is None:
            return
        self._schedule.forget(topic_id)
        if (topic := self._catalog.with_id(topic_id)) is None:
            return
        try:
            manifest = await self._log.with_lists(await self._log.newest(), [topic_id])
        except (Corrupt, NewerFormat) as fault:
            self._set_damaged(topic, fault)
            return
        self.adopt(manifest)
        self._schedule_by(topic, manifest)

    def take_due(self) -> str | None:
        """The topic that is due first, for a `step` now; None if none is due. Until that has ended, the topic counts as
        due a minute later."""
        if self.due_since_ms() is None or (first := self._schedule.first()) is None:
            return None
        self._schedule.set(first[1], self._clock.now_ms() + PAUSE_AFTER_ERROR_MS)
        return first[1]

    async def step(self, topic_id: str) -> None:
        """One step of upkeep for a topic; one at a time. Raises `Conflict`, `Unavailable`."""
        topic = self._catalog.with_id(topic_id)
        if self._upkeep is None or topic is None:
            self._forget(topic_id)
            return
        try:
            step = await self._upkeep.step(self._place(topic), self._log, upkeep_rules(topic.config))
        except (Corrupt, NewerFormat) as fault:
            self._set_damaged(topic, fault)
            return
        self._damages.replace(self._finder(topic_id), ())
        await self._stepped(topic_id, step)

    async def collect(self) -> None:
        """Delete garbage and old versions that are ripe. Raises `Conflict`, `Unavailable`."""
        if self._collector is None:
            return
        self._collect_at_ms = self._clock.now_ms() + PAUSE_AFTER_ERROR_MS
        finder = f"collection of garbage of shard {self.shard}"
        try:
            appended = await self._collector.run(self._log)
        except (Corrupt, NewerFormat) as fault:
            effect = f"Some garbage of shard {self.shard} is not deleted"
            self._damages.replace(finder, [damage_of(fault, effect, self.shard)])
            return
        self._damages.replace(finder, ())
        if appended:
            await self._apply(appended)
        if self._manifest:
            self._collect_at_ms = self._collector.due_at_ms(self._manifest, self._clock.now_ms())

    async def delete_records(self, topic: Topic, number: int, before_offset: int) -> None:
        """Set the log start of a partition to `before_offset`, which is cold. Raises `Conflict`, `Unavailable`,
        `Corrupt`."""
        await self._apply(await delete_records(self._log, self._place(topic), number, before_offset))

    async def _stepped(self, topic_id: str, step: Step) -> None:
        if step.appended and (change := step.manifest.change):
            added = [(changed.name, segment) for changed in change.topics.values() for segment in changed.added]
            self._measurements.wrote(change.kind, added)
        await self._apply(step.manifest)
        state, seen = step.manifest.topics.get(topic_id), self._state_of(topic_id)
        if state and not state.changed_since(seen):
            self._unscheduled.pop(topic_id, None)
            self._schedule.set(topic_id, step.due_at_ms)

    async def _apply(self, manifest: ShardManifest) -> None:
        await self._partitions.apply(manifest)
        self.adopt(manifest)

    def _state_of(self, topic_id: str) -> TopicState | None:
        return self._manifest.topics.get(topic_id) if self._manifest else None

    def _schedule_by_manifest(self, topic_id: str) -> None:
        """By the newest version, if it has the topic's list."""
        topic, state = self._catalog.with_id(topic_id), self._state_of(topic_id)
        if topic is None or state is None:
            self._forget(topic_id)
        elif state.lacks_list:
            self._schedule.set_unknown(topic_id)
        elif self._manifest:
            self._schedule_by(topic, self._manifest)

    def _schedule_by(self, topic: Topic, manifest: ShardManifest) -> None:
        if self._upkeep is not None and topic.topic_id in manifest.topics:
            in_shard = TopicInShard(self._place(topic), manifest)
            self._schedule.set(topic.topic_id, self._upkeep.due_at_ms(in_shard, upkeep_rules(topic.config)))

    def _set_damaged(self, topic: Topic, fault: Corrupt | NewerFormat) -> None:
        """Upkeep found an object that it cannot read: retry the topic later, and continue with the others."""
        self._schedule.set(topic.topic_id, self._clock.now_ms() + PAUSE_AFTER_ERROR_MS)
        damage = damage_of(fault, "Upkeep skips the topic", self.shard, topic.name)
        self._damages.replace(self._finder(topic.topic_id), [damage])

    def _forget(self, topic_id: str) -> None:
        self._damages.forget(self._finder(topic_id))
        self._schedule.forget(topic_id)
        self._unscheduled.pop(topic_id, None)

    def _finder(self, topic_id: str) -> str:
        return f"upkeep of {topic_id} in shard {self.shard}"

    def _place(self, topic: Topic) -> SegmentPlace:
        return SegmentPlace(topic.name, topic.topic_id, self.shard)
