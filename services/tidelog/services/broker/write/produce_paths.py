"""The two ways to append: `ProducePath` for a request of one topic, `PartAppends` for parts of many. Both are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.produce import Acks, Appended, Appending, PartDraft, ProduceOptions
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.shard.debt_brake import DebtBrake
from tidelog.services.broker.shard.shard_leader import SharedResources
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.topics import Topics
from tidelog.services.broker.write.outcomes import Outcomes
from tidelog.services.broker.write.part_admission import PartAdmission
from tidelog.services.broker.write.part_appends import PartAppends
from tidelog.services.broker.write.producing import ProducePath
from tidelog.services.broker.write.routing import Share
from tidelog.services.settings.settings import Settings

ACKS1_LOSS_BEYOND_FLUSH_S = 0.75
"""The default of ``acks1.loss.max.ms`` is the flush interval plus this: several PUTs to a healthy bucket."""


class ProducePaths:
    """For partitions that are led here."""

    def __init__(
        self,
        settings: Settings,
        resources: SharedResources,
        shards: ShardSet,
        reader: PartitionReader,
        brake: DebtBrake,
        topics: Topics,
    ) -> None:
        self._clock = clock = resources.runtime.clock
        self._measurements = resources.measurements
        outcomes = Outcomes(
            shards,
            reader,
            clock,
            commit_timeout_s=settings.commit_timeout_ms / 1000,
            acks1_loss_max_s=_acks1_loss_max_s(settings, resources.policy.interval_s),
        )
        admission = PartAdmission(settings.key_max_bytes, clock)
        self._shares = ProducePath(shards, resources.budget, brake, outcomes)
        self._parts = PartAppends(topics, admission, shards, resources.budget, brake, outcomes)

    async def produce(self, topic: Topic, shares: Sequence[Share], options: ProduceOptions) -> Sequence[Appended]:
        """Append checked records. Raises like `api.Broker.produce`."""
        answered = self._timer(options.acks)
        answers = await self._shares.produce(topic, shares, options)
        answered()
        return answers

    async def append_parts(self, parts: Sequence[PartDraft], acks: Acks) -> Appending:
        """See `api.Broker.append_parts`."""
        return await self._parts.append(parts, acks, self._timer(acks))

    def _timer(self, acks: Acks) -> Callable[[], None]:
        """A request came now. Call the function that is returned when it is answered."""
        came_s = self._clock.monotonic()

        def answered() -> None:
            if acks is Acks.ALL:
                self._measurements.acked(self._clock.monotonic() - came_s)

        return answered


def _acks1_loss_max_s(settings: Settings, flush_interval_s: float) -> float:
    if settings.acks1_loss_max_ms is not None:
        return settings.acks1_loss_max_ms / 1000
    return flush_interval_s + ACKS1_LOSS_BEYOND_FLUSH_S
