"""The upkeep of the partitions of one shard, by its leader.

When a partition is due is known from the manifests that pass through here anyway, those that the archiver and upkeep
itself append; so an idle shard costs no request. Of a partition that has had none since the shard was taken, or whose
topic's settings were changed, nothing is known until it was looked at (`look`), which costs a request unless it is
loaded; whoever calls that does it seldom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic, upkeep_rules
from tidelog.services.broker.archive.damages import Damage, Damages
from tidelog.services.broker.archive.upkeep_schedule import UpkeepSchedule
from tidelog.services.broker.shard.shard_partitions import ShardPartitions
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
"""How long a partition whose upkeep failed, or whose manifest is damaged, is left alone, so that the others come."""


class ShardUpkeep:
    """`upkeep` None: another process does it, and nothing here is ever due."""

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
        self._unjudged: dict[TopicPartition, Manifest] = {}
        self._stepped: tuple[TopicPartition, ManifestLog] | None = None
        self._versions: dict[TopicPartition, int] = {}
        self._topics: dict[str, Topic] = {}
        self._revision = -1

    # ---- what is due

    def archived(self, manifests: Sequence[Manifest]) -> None:
        """These are the newest versions of their partitions."""
        if self._upkeep is not None:
            self._unjudged.update((manifest.topic_partition, manifest) for manifest in manifests)

    def judge(self, count: int) -> bool:
        """Find out of so many partitions whose manifests came by when they are due; whether more are left. It takes
        tens of microseconds each, and a pass of the archiver may bring thousands."""
        while self._unjudged and count > 0:
            _, manifest = self._unjudged.popitem()
            self._know(manifest)
            count -= 1
        return bool(self._unjudged)

    def due_since_ms(self) -> int | None:
        """Since when `step` has something to do, in ms since 1970 UTC; None if it has not."""
        first = self._schedule.first()
        return first[0] if first and first[0] <= self._clock.now_ms() else None

    def follow_topics(self) -> None:
        """Take over what the catalog has now: new partitions, other settings, topics that are gone."""
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

    def look_at_all(self) -> None:
        """Nothing is known of when partitions are due: the clock was set."""
        for topic in self._topics.values():
            self._find_out(self._here(topic))

    def _follow(self, known: Topic | None, topic: Topic) -> None:
        """`topic` is new here, or another than it was when it was `known`."""
        known_here = set(self._here(known)) if known and known.config == topic.config else set()
        born = known is None and self._partitions.is_born(topic)
        if not born:
            self._find_out(place for place in self._here(topic) if place not in known_here)

    def _find_out(self, places: Iterable[TopicPartition]) -> None:
        """From the manifests of those that are loaded; the others are to be looked at."""
        for place in places:
            if state := self._partitions.loaded(place):
                self._unjudged[place] = state.manifest
            else:
                self._schedule.look_at(place)

    def _here(self, topic: Topic) -> Iterable[TopicPartition]:
        shard = self._partitions.wal.shard
        return (topic.partition(number) for number, lives_in in enumerate(topic.shards) if lives_in == shard)

    # ---- doing it

    @property
    def has_unknown(self) -> bool:
        """Whether there is a partition to `look` at."""
        return self._schedule.unknown() is not None

    async def look(self) -> None:
        """Find out when one more partition is due. One LIST, and a GET. Raises `Unavailable`."""
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
            self._is_damaged(topic, place, fault)
            return
        self._partitions.seen(manifest)
        self._know(manifest)

    async def step(self) -> None:
        """One step for the partition that is due first. Raises `Conflict`, `Unavailable`."""
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
            self._is_damaged(topic, place, fault)
            return
        self._damages.found(_finder(place), ())
        self._stepped = (place, log) if step.appended else None
        if step.appended:
            self._partitions.made(step.manifest)
        self._take_over(step.manifest)
        if step.manifest.version == self._versions.get(place):  # else the archiver has told of a newer one meanwhile
            self._schedule.set(place, step.due_at_ms)

    async def delete_records(self, topic: Topic, number: int, before_offset: int) -> None:
        """Begin the log of a partition at `before_offset`, which is cold. Raises `Conflict`, `Unavailable`."""
        self._take_over(await delete_records(self._log(topic, topic.partition(number)), before_offset))

    def _take_over(self, manifest: Manifest) -> None:
        state = self._partitions.loaded(manifest.topic_partition)
        if state and manifest.cold_end > state.high_watermark:
            return  # another broker leads the shard by now, and has archived what this one does not know of
        self._partitions.archived((manifest,))
        self._know(manifest)

    def _know(self, manifest: Manifest) -> None:
        """Find out when its partition is due, unless a newer version is known, which may come by while an older one is
        being looked at."""
        place = manifest.topic_partition
        topic = self._catalog.with_id(place.topic_id)
        if self._upkeep is None or topic is None:
            self._forget(place)
        elif manifest.version >= self._versions.get(place, -1):
            self._versions[place] = manifest.version
            self._schedule.set(place, self._upkeep.due_at_ms(manifest, upkeep_rules(topic.config)))

    def _is_damaged(self, topic: Topic, place: TopicPartition, fault: Corrupt) -> None:
        """Upkeep of a partition met a damaged object: it is tried again later, and others go on."""
        self._schedule.set(place, self._clock.now_ms() + PAUSE_AFTER_ERROR_MS)
        where = (self._partitions.wal.shard, topic.name, place.partition)
        self._damages.found(
            _finder(place), [Damage(fault.name, fault.reason, "Upkeep leaves the partition alone", *where)]
        )

    def _forget(self, place: TopicPartition) -> None:
        self._damages.forget(_finder(place))
        self._schedule.forget(place)
        self._unjudged.pop(place, None)
        self._versions.pop(place, None)

    def _log_of_step(self, topic: Topic, place: TopicPartition) -> ManifestLog:
        """The one of the last step, if that was of the same partition: its list of segments may be long to read."""
        stepped, self._stepped = self._stepped, None
        return stepped[1] if stepped and stepped[0] == place else self._log(topic, place)

    def _log(self, topic: Topic, place: TopicPartition) -> ManifestLog:
        return ManifestLog(self._store, topic.name, place, self._clock)


def _finder(place: TopicPartition) -> str:
    return f"upkeep of {place.topic_id}/{place.partition}"
