"""The change of a shard's manifest that a pass of the archiver makes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.storage.archive.partition_states import ProducerLimits, state_after
from tidelog.storage.archive.topic_plan import TopicPlan
from tidelog.storage.errors import Conflict
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import EMPTY, ChangeKind, ColdState, TopicSegment
from tidelog.storage.wal.floor import Floor


@dataclass(frozen=True)
class PassChange:
    """Planned from the version `began`. `names`: of the topics, by id. `floor`: where the log begins after the pass;
    None if damage holds the floor."""

    plans: Sequence[TopicPlan]
    names: Mapping[str, str]
    floor: Floor | None
    began: ShardManifest
    limits: ProducerLimits
    now_ms: int

    def of(self, latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
        """The change of `latest`, with one segment for each plan. Raises `Conflict` if another archiver has archived
        the records."""
        if latest.floor != self.began.floor:
            raise Conflict(f"another archiver was faster: the floor is {latest.floor.number}")
        topics = {
            plan.topic_id: self._topic(plan, latest, segment) for plan, segment in zip(self.plans, added, strict=True)
        }
        return ManifestChange(ChangeKind.ARCHIVE, topics, self.floor)

    def _topic(self, plan: TopicPlan, latest: ShardManifest, segment: TopicSegment) -> TopicChange:
        states: dict[int, ColdState] = {}
        for number, part in plan.partitions.items():
            state = state_in(latest, plan.topic_id, number)
            if state.cold_end != state_in(self.began, plan.topic_id, number).cold_end:
                raise Conflict(f"another archiver was faster: {state.cold_end} is the cold end")
            states[number] = state_after(state, part, self.limits, self.now_ms)
        topic = latest.topics.get(plan.topic_id)
        placed = replace(segment, run=topic.next_run if topic else 0)
        return TopicChange(self.names[plan.topic_id], added=(placed,), partitions=states)


def states_of(manifest: ShardManifest, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, ColdState]:
    """The states of partitions whose topics' lists were read."""
    return {place: state_in(manifest, place.topic_id, place.partition) for place in places}


def state_in(manifest: ShardManifest, topic_id: str, partition: int) -> ColdState:
    """The state of a partition, whose topic's list was read."""
    topic = manifest.topics.get(topic_id)
    return topic.partition(partition) if topic else EMPTY
