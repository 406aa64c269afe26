"""Appends the shares of a produce request of one topic: all are placed, or none.

Every check comes before the first append, and nothing is awaited between the last check and the last append, so no
other request comes in between (inv. 10). `part_appends.py` appends parts that do not depend on each other, by the same
steps."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.produce import Appended, ProduceOptions, each_told
from tidelog.services.broker.shard.append_buffer import BufferBudget
from tidelog.services.broker.shard.debt_brake import DebtBrake
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.write.outcomes import Outcomes
from tidelog.services.broker.write.placing import (
    Placed,
    Refused,
    Repeated,
    Target,
    check_target,
    compare,
    held_bytes,
    locate,
    place,
)
from tidelog.services.broker.write.routing import Share
from tidelog.storage.errors import TidelogError


class ProducePath:
    """`api.Broker.produce` for partitions that are led here."""

    def __init__(self, shards: ShardSet, budget: BufferBudget, brake: DebtBrake, outcomes: Outcomes) -> None:
        self._shards = shards
        self._budget = budget
        self._brake = brake
        self._outcomes = outcomes

    async def produce(self, topic: Topic, shares: Sequence[Share], options: ProduceOptions) -> Sequence[Appended]:
        """Append `shares` and answer as `options.acks` says. Raises like `api.Broker.produce`."""
        await self._brake.delay({topic.shards[share.partition] for share in shares})
        targets = await self._located(topic, shares)
        found = self._place(targets, options)
        until_s = self._outcomes.deadline_s()
        if isinstance(found, Repeated):
            return (await self._outcomes.answer_again(found, options.acks, until_s),)
        if isinstance(found, Refused):
            return (await self._outcomes.refuse(found, until_s),)
        if options.tell_each:
            return each_told(await self._outcomes.answer_each(found, options.acks, until_s))
        return await self._outcomes.answer(found, options.acks, until_s)

    async def _located(self, topic: Topic, shares: Sequence[Share]) -> Sequence[Target]:
        targets = []
        for target in await locate(self._shards, [(topic, share) for share in shares]):
            if isinstance(target, TidelogError):
                raise target
            targets.append(target)
        return targets

    def _place(self, targets: Sequence[Target], options: ProduceOptions) -> Sequence[Placed] | Repeated | Refused:
        """Raises `NotLeader`, `LeaderUnknown`, `NotFound`, `Overloaded`, `TooLarge`. Must not await."""
        for target in targets:
            check_target(self._shards, target)
        if found := compare(targets[0], options.producer, options.expected_offset):
            return found
        self._brake.check({target.leader.shard for target in targets})
        self._budget.reserve(sum(held_bytes(target.share) for target in targets))
        return [place(target, options.producer) for target in targets]
