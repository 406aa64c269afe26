"""Appends parts: batches for many partitions of many topics, none of which depends on another.

`PartAppends.append` returns once each part is placed, repeated or refused (`placing.py`). The order relative to the
next request of the connection is fixed then, and the connection may place that one. `PlacedParts.answers` gives the
answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidelog.services.broker.api.produce import Acks, Appended, PartDraft, ProducerSequence, not_appended
from tidelog.services.broker.shard.append_buffer import BufferBudget
from tidelog.services.broker.shard.debt_brake import DebtBrake
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.topics import Topics
from tidelog.services.broker.write.outcomes import Outcomes
from tidelog.services.broker.write.part_admission import PartAdmission, without_errors
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
from tidelog.storage.errors import Overloaded, TidelogError, TooLarge

ANSWERS_AT_ONCE = 32
"""Repeated and refused parts of one request that are answered in parallel."""

Entry = Placed | Repeated | Refused | TidelogError
"""What became of a part. A `TidelogError` refuses it at once."""


class PlacedParts:
    """An `api.Appending`. `entries` are in the order of `parts`."""

    def __init__(
        self,
        outcomes: Outcomes,
        parts: Sequence[PartDraft],
        entries: Sequence[Entry],
        acks: Acks,
        on_answered: Callable[[], None],
    ) -> None:
        self._outcomes = outcomes
        self._parts = parts
        self._entries = entries
        self._acks = acks
        self._on_answered = on_answered
        self._until_s = outcomes.deadline_s()

    async def answers(self) -> Sequence[Appended]:
        placed = [at for at, entry in enumerate(self._entries) if isinstance(entry, Placed)]
        others = [at for at, entry in enumerate(self._entries) if not isinstance(entry, Placed)]
        found: dict[int, Appended] = {}
        await asyncio.gather(self._answer_placed(placed, found), self._answer_others(others, found))
        self._on_answered()
        return [found[at] for at in range(len(self._entries))]

    async def _answer_placed(self, places: Sequence[int], found: dict[int, Appended]) -> None:
        placed = [entry for at in places if isinstance(entry := self._entries[at], Placed)]
        found.update(zip(places, await self._outcomes.answer_each(placed, self._acks, self._until_s), strict=True))

    async def _answer_others(self, places: Sequence[int], found: dict[int, Appended]) -> None:
        for first in range(0, len(places), ANSWERS_AT_ONCE):
            some = places[first : first + ANSWERS_AT_ONCE]
            answers = await asyncio.gather(*(self._answer_other(at) for at in some))
            found.update(zip(some, answers, strict=True))

    async def _answer_other(self, at: int) -> Appended:
        entry, part = self._entries[at], self._parts[at]
        try:
            if isinstance(entry, Repeated):
                return await self._outcomes.answer_again(entry, self._acks, self._until_s)
            if isinstance(entry, Refused):
                await self._outcomes.refuse(entry, self._until_s)
            assert isinstance(entry, TidelogError)
            error = entry
        except TidelogError as raised:
            error = raised
        return not_appended(part.partition, None, part.records.num_rows, error)


class PartAppends:
    """`api.Broker.append_parts`, for partitions that are led here."""

    def __init__(
        self,
        topics: Topics,
        admission: PartAdmission,
        shards: ShardSet,
        budget: BufferBudget,
        brake: DebtBrake,
        outcomes: Outcomes,
    ) -> None:
        self._topics = topics
        self._admission = admission
        self._shards = shards
        self._budget = budget
        self._brake = brake
        self._outcomes = outcomes

    async def append(self, parts: Sequence[PartDraft], acks: Acks, on_answered: Callable[[], None]) -> PlacedParts:
        """Return once each of `parts` is placed, repeated or refused. `on_answered` is called with the answers."""
        topics = await self._topics.known_all([(part.topic, part.partition) for part in parts])
        admitted = self._admission.admit(parts, topics)
        await self._brake.delay({topic.shards[share.partition] for topic, share in without_errors(admitted)})
        targets = await locate(self._shards, admitted)
        return PlacedParts(self._outcomes, parts, self._place(parts, targets), acks, on_answered)

    def _place(self, parts: Sequence[PartDraft], targets: Sequence[Target | TidelogError]) -> Sequence[Entry]:
        """Must not await."""
        braked: dict[int, Overloaded | None] = {}
        if not self._brake.figures().pressure:  # no shard is braked, so none is asked
            braked = dict.fromkeys(target.leader.shard for target in targets if isinstance(target, Target))
        entries: list[Entry] = []
        for part, target in zip(parts, targets, strict=True):
            entries.append(
                target if isinstance(target, TidelogError) else self._place_one(target, part.producer, braked)
            )
        return entries

    def _place_one(
        self, target: Target, producer: ProducerSequence | None, braked: dict[int, Overloaded | None]
    ) -> Entry:
        try:
            check_target(self._shards, target)
            if found := compare(target, producer, None):
                return found
        except TidelogError as error:
            return error
        if refusal := self._braked(target.leader.shard, braked) or self._reserve(target):
            if producer and isinstance(refusal, Overloaded):
                target.state.producers.expect(producer)
            return refusal
        return place(target, producer)

    def _reserve(self, target: Target) -> Overloaded | TooLarge | None:
        try:
            self._budget.reserve(held_bytes(target.share))
        except (Overloaded, TooLarge) as refusal:
            return refusal
        return None

    def _braked(self, shard: int, known: dict[int, Overloaded | None]) -> Overloaded | None:
        """Why the brake refuses produces to `shard` now; asked once for each shard of a request."""
        if shard not in known:
            try:
                self._brake.check({shard})
                known[shard] = None
            except Overloaded as refusal:
                known[shard] = refusal
        return known[shard]
