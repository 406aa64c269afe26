"""Appends the shares of a produce request to their partitions, from the last checks to the answer.

- Every check comes before the first append, and nothing is awaited between the last check and the last append, so no
  other request comes in between (inv. 10).
- A refusal that depends on buffered records is answered only after they are committed. If it were answered earlier and
  they then failed, the refusal would be wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.produce import Acks, Appended, ProduceOptions, each_told, not_appended
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.shard.append_buffer import APPEND_OVERHEAD_BYTES, Append, BufferBudget
from tidelog.services.broker.shard.debt_brake import DebtBrake
from tidelog.services.broker.shard.idempotence import RememberedBatch
from tidelog.services.broker.shard.partition_state import Outcome, PartitionState
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.write.routing import Share
from tidelog.storage.errors import Conflict, Denied, Fenced, NotFound, OffsetConflict, TidelogError, Unavailable
from tidelog.storage.wal.wal_entry import ProducerMark

LOADS_MAX = 32
"""Partitions that one request loads in parallel."""


@dataclass(frozen=True)
class _Target:
    """A share, its partition and the leader of its shard."""

    share: Share
    leader: ShardLeader
    state: PartitionState


class ProducePath:
    """`api.Broker.produce` for partitions that are led here."""

    def __init__(
        self,
        shards: ShardSet,
        budget: BufferBudget,
        reader: PartitionReader,
        brake: DebtBrake,
        *,
        commit_timeout_s: float,
        acks1_loss_max_s: float,
    ) -> None:
        self._shards = shards
        self._budget = budget
        self._reader = reader
        self._brake = brake
        self._commit_timeout_s = commit_timeout_s
        self._acks1_loss_max_s = acks1_loss_max_s

    async def produce(self, topic: Topic, shares: Sequence[Share], options: ProduceOptions) -> Sequence[Appended]:
        """Append `shares` and answer as `options.acks` says. Raises like `api.Broker.produce`."""
        await self._brake.delay({topic.shards[share.partition] for share in shares})
        await self._load(topic, shares)
        targets = [await self._target(topic, share) for share in shares]
        for target in targets:
            self._shards.check_leading(target.leader)
            if target.state.deleted:
                raise NotFound(f"topic {topic.name!r} was deleted")
        if options.producer or options.expected_offset is not None:
            duplicate = await self._duplicate(targets[0], options)
            if duplicate:
                return (await self._answer_again(targets[0], duplicate, options.acks),)
        outcomes = self._append_all(targets, options)
        answers = tuple(_appended(target.share, append, options.acks) for target, append, _ in outcomes)
        # While the store refuses commits, no record is acknowledged before its commit, whatever `acks` says.
        if options.acks is Acks.ALL or any(target.leader.retries.denied for target in targets):
            committed = [(target, outcome) for target, _, outcome in outcomes]
            if options.tell_each:
                await self._settled(committed)
                return each_told([_told(answer, *one) for answer, one in zip(answers, committed, strict=True)])
            await self._all_committed(committed)
        elif options.acks is Acks.LEADER:
            await self._loss_bounded([(target, outcome) for target, _, outcome in outcomes])
        return answers

    async def _load(self, topic: Topic, shares: Sequence[Share]) -> None:
        leaders = {share.partition: self._shards.leading(topic.shards[share.partition]) for share in shares}
        unknown = [n for n, leader in leaders.items() if not leader.partitions.loaded(topic.partition(n))]
        for first in range(0, len(unknown), LOADS_MAX):
            some = unknown[first : first + LOADS_MAX]
            await asyncio.gather(*(leaders[n].partitions.load(topic, n) for n in some))

    async def _target(self, topic: Topic, share: Share) -> _Target:
        leader = self._shards.leading(topic.shards[share.partition])
        state = leader.partitions.loaded(topic.partition(share.partition))
        if state is None:
            state = await leader.partitions.load(topic, share.partition)
        return _Target(share, leader, state)

    async def _duplicate(self, target: _Target, options: ProduceOptions) -> RememberedBatch | None:
        """The remembered batch that this request repeats. Raises a conflict, once it is certain."""
        try:
            return _checked(target, options)
        except Conflict as refusal:
            # Decided before the next await, during which other requests change the state.
            rests_on_buffered = _rests_on_buffered(target.state, options)
            # A replaced leader that does not know it would refuse because of outdated state.
            await self._shards.prove_leading(target.leader)
            if not rests_on_buffered:
                raise
            conflict = refusal
        await self._committed(target)
        if isinstance(conflict, OffsetConflict):
            conflict.next_offset = target.state.high_watermark
        raise conflict

    async def _committed(self, target: _Target) -> None:
        if outcome := target.state.last_outcome:
            await self._all_committed([(target, outcome)])

    async def _answer_again(self, target: _Target, batch: RememberedBatch, acks: Acks) -> Appended:
        """Answer a repeated batch like the first one, once it is committed."""
        if acks is Acks.ALL and batch.base_offset >= target.state.high_watermark:
            await self._committed(target)
        elif acks is Acks.LEADER and target.state.last_outcome:
            await self._loss_bounded([(target, target.state.last_outcome)])
        timestamp_ms = batch.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = await self._reader.latest_timestamp_ms(
                target.leader.partitions, target.state, batch.base_offset, batch.count
            )
        return Appended(target.share.partition, batch.base_offset, batch.count, timestamp_ms, duplicate=True)

    def _append_all(self, targets: Sequence[_Target], options: ProduceOptions) -> list[tuple[_Target, Append, Outcome]]:
        """All shares, or none if it raises `Overloaded`. Must not await."""
        self._brake.check({target.leader.shard for target in targets})
        held_bytes = sum(_held_bytes(target.share) for target in targets)
        self._budget.reserve(held_bytes)
        return [self._append(target, options) for target in targets]

    def _append(self, target: _Target, options: ProduceOptions) -> tuple[_Target, Append, Outcome]:
        share, state = target.share, target.state
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
        state.last_outcome = target.leader.append(append)
        return target, append, state.last_outcome

    async def _all_committed(self, outcomes: Sequence[tuple[_Target, Outcome]]) -> None:
        await self._settled(outcomes)
        _check_outcomes(outcomes)

    async def _settled(self, outcomes: Sequence[tuple[_Target, Outcome]]) -> None:
        """Return when all are committed or have failed, or after the time for commits."""
        waiting = {outcome for _, outcome in outcomes if not outcome.done()}
        if waiting:
            await asyncio.wait(waiting, timeout=self._commit_timeout_s)

    async def _loss_bounded(self, outcomes: Sequence[tuple[_Target, Outcome]]) -> None:
        """Return once the loss window of each shard is narrower than ``acks1.loss.max.ms``; raises if one is not."""
        bound_s = self._acks1_loss_max_s
        for target, outcome in outcomes:
            await target.leader.loss_window.wait_until_narrower(bound_s, outcome, self._commit_timeout_s)
        _check_outcomes([(p, o) for p, o in outcomes if o.done() or p.leader.loss_window.is_wider(bound_s)])


def _checked(target: _Target, options: ProduceOptions) -> RememberedBatch | None:
    state, count = target.state, target.share.records.num_rows
    if options.producer and (found := state.producers.find(options.producer, count)):
        return found
    if options.expected_offset is not None and options.expected_offset != state.next_offset:
        raise OffsetConflict(
            f"the next offset of partition {target.share.partition} of {state.topic!r} is {state.high_watermark}, not "
            f"{options.expected_offset}",
            next_offset=state.high_watermark,
        )
    return None


def _rests_on_buffered(state: PartitionState, options: ProduceOptions) -> bool:
    """Whether a refusal would be wrong if the buffered records were lost."""
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
    return Appended(share.partition, base_offset, append.count, share.timestamp_ms_max, rows=share.rows)


def _told(answer: Appended, target: _Target, outcome: Outcome) -> Appended:
    """`answer`, or why its records are not known to be in the log."""
    try:
        _check_outcome(target, outcome)
    except TidelogError as error:
        return not_appended(answer.partition, answer.rows, answer.count, error)
    return answer


def _check_outcomes(outcomes: Sequence[tuple[_Target, Outcome]]) -> None:
    """Raises unless all are committed; the error lists the committed partitions."""
    committed = tuple(target.share.partition for target, o in outcomes if o.done() and o.result() is None)
    if len(committed) == len(outcomes):
        return
    try:
        for target, outcome in outcomes:
            _check_outcome(target, outcome)
    except (Denied, Fenced, Unavailable) as error:
        error.committed = committed
        raise


def _check_outcome(target: _Target, outcome: Outcome) -> None:
    if outcome.done():
        if failure := outcome.result():
            raise failure.error()
    elif denied := target.leader.retries.denied:
        raise Denied(
            "the store refuses the broker's commits. The broker keeps the records and retries, so the outcome is "
            f"unknown. Retry with the same sequence; without one the records may be in the log twice. {denied}"
        )
    else:
        raise Unavailable("the store did not confirm in time: the outcome is unknown. A retry may repeat the records")
