"""A produce request, from its checks to its answer.

Everything that can be refused is refused before anything is taken (inv. 10): between the last check and the last
append nothing is awaited, so no other request comes between. A refusal that rests on records that are buffered and
not yet committed is given only once they are: were it given sooner and they then failed, it would have been wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.produce import Acks, Appended, ProduceOptions
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.write.append_buffer import APPEND_OVERHEAD_BYTES, Append, BufferBudget, Outcome
from tidelog.services.broker.write.idempotence import RememberedBatch
from tidelog.services.broker.write.routing import Share
from tidelog.storage.errors import Conflict, Denied, Fenced, NotFound, OffsetConflict, Unavailable
from tidelog.storage.wal_entry import ProducerMark

LOADS_MAX = 32
"""Partitions that one request loads at the same time."""


@dataclass(frozen=True)
class _Place:
    """A share with where it goes."""

    share: Share
    leader: ShardLeader
    state: PartitionState


class ProducePath:
    """Appends shares to the shards that lead their partitions."""

    def __init__(
        self,
        shards: ShardSet,
        budget: BufferBudget,
        reader: PartitionReader,
        *,
        commit_timeout_s: float,
        acks1_loss_max_s: float,
    ) -> None:
        self._shards = shards
        self._budget = budget
        self._reader = reader
        self._commit_timeout_s = commit_timeout_s
        self._acks1_loss_max_s = acks1_loss_max_s

    async def produce(self, topic: Topic, shares: Sequence[Share], options: ProduceOptions) -> Sequence[Appended]:
        """Take `shares` and answer as `options.acks` says. Raises what `api.Broker.produce` lists."""
        await self._load(topic, shares)
        places = [await self._place(topic, share) for share in shares]
        for place in places:
            self._shards.check_leading(place.leader)
            if place.state.deleted:
                raise NotFound(f"topic {topic.name!r} was deleted")
        if options.producer or options.expected_offset is not None:
            duplicate = await self._duplicate(places[0], options)
            if duplicate:
                return (await self._answer_again(places[0], duplicate, options.acks),)
        outcomes = self._take(places, options)
        answers = tuple(_appended(place.share, append, options.acks) for place, append, _ in outcomes)
        # While the store refuses commits no records are acknowledged before theirs, whatever `acks` says.
        if options.acks is Acks.ALL or any(place.leader.retries.denied for place in places):
            await self._all_committed([(place, outcome) for place, _, outcome in outcomes])
        elif options.acks is Acks.LEADER:
            await self._loss_bounded([(place, outcome) for place, _, outcome in outcomes])
        return answers

    # ---- finding

    async def _load(self, topic: Topic, shares: Sequence[Share]) -> None:
        """Load the partitions that are not here yet, many at a time."""
        leaders = {share.partition: self._shards.leading(topic.shards[share.partition]) for share in shares}
        unknown = [n for n, leader in leaders.items() if not leader.partitions.loaded(topic.partition(n))]
        for first in range(0, len(unknown), LOADS_MAX):
            some = unknown[first : first + LOADS_MAX]
            await asyncio.gather(*(leaders[n].partitions.load(topic, n) for n in some))

    async def _place(self, topic: Topic, share: Share) -> _Place:
        leader = self._shards.leading(topic.shards[share.partition])
        state = leader.partitions.loaded(topic.partition(share.partition))
        if state is None:
            state = await leader.partitions.load(topic, share.partition)
        return _Place(share, leader, state)

    # ---- checking

    async def _duplicate(self, place: _Place, options: ProduceOptions) -> RememberedBatch | None:
        """The batch that this request repeats. Raises the conflict that stands in its way, once that is certain."""
        try:
            return _checked(place, options)
        except Conflict as refusal:
            rests_on_buffered = _rests_on_buffered(place.state, options)  # as of now: the next line lets others go on
            # A leader that was replaced and does not know it yet refuses by a state that is over.
            await self._shards.prove_leading(place.leader)
            if not rests_on_buffered:
                raise
            conflict = refusal
        await self._committed(place)
        if isinstance(conflict, OffsetConflict):
            conflict.next_offset = place.state.high_watermark
        raise conflict

    async def _committed(self, place: _Place) -> None:
        """Return once what is buffered for the partition now is committed; raise if it is not."""
        state = place.state
        if state.last_outcome and not state.last_outcome.done():
            await asyncio.wait((state.last_outcome,), timeout=self._commit_timeout_s)
        if state.last_outcome:
            _check_outcome(place, state.last_outcome)

    async def _answer_again(self, place: _Place, batch: RememberedBatch, acks: Acks) -> Appended:
        """Answer a repeated batch as the first time, when it is committed."""
        if acks is Acks.ALL and batch.base_offset >= place.state.high_watermark:
            await self._committed(place)
        elif acks is Acks.LEADER and place.state.last_outcome:
            await self._loss_bounded([(place, place.state.last_outcome)])
        timestamp_ms = batch.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = await self._reader.latest_timestamp_ms(
                place.leader.partitions, place.state, batch.base_offset, batch.count
            )
        return Appended(place.share.partition, batch.base_offset, batch.count, timestamp_ms, duplicate=True)

    # ---- taking

    def _take(self, places: Sequence[_Place], options: ProduceOptions) -> list[tuple[_Place, Append, Outcome]]:
        """All of it or, with `Overloaded`, nothing. No await in here."""
        held_bytes = sum(_held_bytes(place.share) for place in places)
        self._budget.reserve(held_bytes)
        return [self._append(place, options) for place in places]

    def _append(self, place: _Place, options: ProduceOptions) -> tuple[_Place, Append, Outcome]:
        share, state = place.share, place.state
        base_offset = state.assign(share.records.num_rows)
        mark = _mark(state, options, base_offset, share.records.num_rows)
        if mark:
            state.producers.remember(mark, share.timestamp_ms_max)
        append = Append(
            state,
            share.records,
            base_offset,
            _held_bytes(share),
            share.payload_bytes,
            share.timestamp_ms_max,
            mark,
        )
        state.last_outcome = place.leader.append(append)
        return place, append, state.last_outcome

    # ---- answering

    async def _all_committed(self, outcomes: Sequence[tuple[_Place, Outcome]]) -> None:
        """Return once all are committed; else raise what is known of those that are not."""
        waiting = {outcome for _, outcome in outcomes if not outcome.done()}
        if waiting:
            await asyncio.wait(waiting, timeout=self._commit_timeout_s)
        _check_outcomes(outcomes)

    async def _loss_bounded(self, outcomes: Sequence[tuple[_Place, Outcome]]) -> None:
        """Return once a crash would lose no more than ``acks1.loss.max.ms`` of what each shard has taken; else raise
        what is known of the records."""
        bound_s = self._acks1_loss_max_s
        for place, outcome in outcomes:
            await place.leader.loss_window.narrowed(bound_s, outcome, self._commit_timeout_s)
        _check_outcomes([(p, o) for p, o in outcomes if o.done() or p.leader.loss_window.is_wider(bound_s)])


def _checked(place: _Place, options: ProduceOptions) -> RememberedBatch | None:
    state, count = place.state, place.share.records.num_rows
    if options.producer and (found := state.producers.find(options.producer, count)):
        return found
    if options.expected_offset is not None and options.expected_offset != state.next_offset:
        raise OffsetConflict(
            f"partition {place.share.partition} of {state.topic!r} goes on at offset {state.high_watermark}, "
            f"not {options.expected_offset}",
            next_offset=state.high_watermark,
        )
    return None


def _rests_on_buffered(state: PartitionState, options: ProduceOptions) -> bool:
    """Whether a refusal could turn out wrong if what is buffered were lost."""
    if state.high_watermark == state.next_offset:
        return False
    overtaken = options.expected_offset is not None and options.expected_offset < state.high_watermark
    return not overtaken or options.producer is not None


def _held_bytes(share: Share) -> int:
    return share.held_bytes + APPEND_OVERHEAD_BYTES


def _mark(state: PartitionState, options: ProduceOptions, base_offset: int, count: int) -> ProducerMark | None:
    if options.producer is None:
        return None
    first = options.producer.first_sequence
    return ProducerMark(
        state.topic_partition,
        options.producer.producer_id,
        options.producer.producer_epoch,
        first,
        first + count - 1,
        base_offset,
    )


def _appended(share: Share, append: Append, acks: Acks) -> Appended:
    base_offset = None if acks is Acks.NONE else append.base_offset
    return Appended(share.partition, base_offset, append.count, share.timestamp_ms_max)


def _check_outcomes(outcomes: Sequence[tuple[_Place, Outcome]]) -> None:
    """Raises unless all are committed, and says which are."""
    committed = tuple(place.share.partition for place, o in outcomes if o.done() and o.result() is None)
    if len(committed) == len(outcomes):
        return
    try:
        for place, outcome in outcomes:
            _check_outcome(place, outcome)
    except (Denied, Fenced, Unavailable) as error:
        error.committed = committed
        raise


def _check_outcome(place: _Place, outcome: Outcome) -> None:
    """Raises unless `outcome` says committed."""
    if outcome.done():
        if failure := outcome.result():
            raise failure.error()
    elif denied := place.leader.retries.denied:
        raise Denied(
            "the store refuses the broker's commits. The broker keeps the records and tries again, so the outcome is "
            f"unknown: send them again with the same sequence, or they may be in the log twice. {denied}"
        )
    else:
        raise Unavailable("the store did not confirm in time: the outcome is unknown; a retry may repeat the records")
