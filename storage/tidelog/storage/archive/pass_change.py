"""The change of a shard's manifest that a pass of the archiver makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from msgspec.structs import replace

from tidelog.storage.archive.topic_plan import PartitionPart, TopicPlan
from tidelog.storage.errors import Conflict
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import past_losses
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, KnownProducer, TopicSegment
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal_entry import ProducerMark


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """At most `producers_max` producers of a partition are kept, and none longer than `expiration_ms` after its last
    batch was archived (inv. 7)."""

    producers_max: int = 10_000
    expiration_ms: int = 86_400_000


@dataclass(frozen=True)
class PassChange:
    """Planned from the version `began`. `names`: of the topics, by id."""

    plans: Sequence[TopicPlan]
    names: Mapping[str, str]
    began: ShardManifest
    limits: ProducerLimits
    now_ms: int

    def of(self, latest: ShardManifest, added: Sequence[TopicSegment], floor: Floor | None) -> ManifestChange:
        """The change of `latest`, with one segment for each plan. `floor`: where the log begins from then on; None if
        damage holds it. Raises `Conflict` if another archiver has archived the records."""
        if latest.floor != self.began.floor:
            raise Conflict(f"another archiver was faster: the floor is {latest.floor.number}")
        topics = {
            plan.topic_id: self._topic(plan, latest, segment) for plan, segment in zip(self.plans, added, strict=True)
        }
        return ManifestChange(ChangeKind.ARCHIVE, topics, floor)

    def _topic(self, plan: TopicPlan, latest: ShardManifest, segment: TopicSegment) -> TopicChange:
        states: dict[int, ColdState] = {}
        for number, part in plan.partitions.items():
            place = TopicPartition(plan.topic_id, number)
            state = latest.state(place)
            if state.cold_end != self.began.state(place).cold_end:
                raise Conflict(f"another archiver was faster: {state.cold_end} is the cold end")
            states[number] = self._state_after(state, part)
        topic = latest.topics.get(plan.topic_id)
        placed = replace(segment, run=topic.next_run if topic else 0)
        return TopicChange(self.names[plan.topic_id], added=(placed,), partitions=states)

    def _state_after(self, state: ColdState, part: PartitionPart) -> ColdState:
        last_epoch = state.epochs[-1].epoch if state.epochs else -1
        return replace(
            state,
            cold_end=past_losses(state.losses, part.next_offset),
            epochs=(*state.epochs, *(each for each in part.epochs if each.epoch > last_epoch)),
            producers=self._producers(state.producers, part.producers),
        )

    def _producers(self, known: Sequence[KnownProducer], marks: Sequence[ProducerMark]) -> tuple[KnownProducer, ...]:
        """The last batch of each producer, by offset. Beyond the most, the oldest are dropped: their retries are long
        over."""
        living = [each for each in known if each.archived_at_ms >= self.now_ms - self.limits.expiration_ms]
        by_offset = sorted((*living, *(self._known(mark) for mark in marks)), key=attrgetter("base_offset"))
        last = {each.producer_id: each for each in by_offset}
        return tuple(sorted(last.values(), key=attrgetter("base_offset"))[-self.limits.producers_max :])

    def _known(self, mark: ProducerMark) -> KnownProducer:
        sequences = mark.first_sequence, mark.last_sequence
        return KnownProducer(mark.producer_id, mark.producer_epoch, *sequences, mark.base_offset, self.now_ms)
