"""Answers of shares that have their places: the second half of a produce. `placing.py` is the first.

- ``acks=all`` is answered after the commit (inv. 1). ``acks=1`` is answered while the loss window of the shard is
  narrower than ``acks1.loss.max.ms``.
- While the store refuses commits, no record is acknowledged before its commit, whatever `acks` says.
- A repeated share is answered like the first one, a refused one when the refusal is certain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from tidelog.services.broker.api.produce import Acks, Appended, not_appended
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.shard.partition_state import Outcome
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.write.placing import Placed, Refused, Repeated, Target
from tidelog.services.broker.write.routing import Share
from tidelog.storage.errors import Denied, Fenced, OffsetConflict, TidelogError, Unavailable
from tidelog.storage.runtime import Clock


class Outcomes:
    """Waits for outcomes, until a time on the monotonic clock (`until_s`): ``commit.timeout.ms`` after the placing."""

    def __init__(
        self,
        shards: ShardSet,
        reader: PartitionReader,
        clock: Clock,
        *,
        commit_timeout_s: float,
        acks1_loss_max_s: float,
    ) -> None:
        self._shards = shards
        self._reader = reader
        self._clock = clock
        self._commit_timeout_s = commit_timeout_s
        self._acks1_loss_max_s = acks1_loss_max_s

    def deadline_s(self) -> float:
        """Until when the answers of a request that is placed now may wait."""
        return self._clock.monotonic() + self._commit_timeout_s

    async def answer(self, placed: Sequence[Placed], acks: Acks, until_s: float) -> Sequence[Appended]:
        """Raises `Unavailable`, `Denied`, `Fenced` unless all are acknowledged; the error lists the committed
        partitions."""
        if missing := await self._unacknowledged(placed, acks, until_s):
            error = _error(missing[0].target, missing[0].outcome)
            error.committed = tuple(one.target.share.partition for one in placed if _is_committed(one.outcome))
            raise error
        return [_appended(one, acks) for one in placed]

    async def answer_each(self, placed: Sequence[Placed], acks: Acks, until_s: float) -> Sequence[Appended]:
        """A share that is not acknowledged has its error in its answer."""
        missing = set(map(id, await self._unacknowledged(placed, acks, until_s)))
        return [_not_acknowledged(one) if id(one) in missing else _appended(one, acks) for one in placed]

    async def answer_again(self, repeated: Repeated, acks: Acks, until_s: float) -> Appended:
        """Answer a repeated share like the first one, once it is committed."""
        target, batch, behind = repeated.target, repeated.batch, repeated.behind
        if acks is Acks.ALL and batch.base_offset >= target.state.high_watermark:
            await self._committed(target, behind, until_s)
        elif acks is Acks.LEADER and behind and not await self._loss_bounded([(target.leader, behind)], until_s):
            raise _error(target, behind)
        timestamp_ms = batch.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = await self._reader.latest_timestamp_ms(
                target.leader.partitions, target.state, batch.base_offset, batch.count
            )
        start = target.state.log_start_offset
        offset, count = batch.base_offset, batch.count
        return Appended(target.share.partition, offset, count, timestamp_ms, duplicate=True, log_start_offset=start)

    async def refuse(self, refused: Refused, until_s: float) -> Appended:
        """Raises the conflict, once it is certain; or why it is not."""
        # A replaced leader that does not know it would refuse because of outdated state.
        await self._shards.prove_leading(refused.target.leader)
        if refused.behind:
            await self._committed(refused.target, refused.behind, until_s)
            if isinstance(refused.conflict, OffsetConflict):
                refused.conflict.next_offset = refused.target.state.high_watermark
        raise refused.conflict

    async def _committed(self, target: Target, outcome: Outcome | None, until_s: float) -> None:
        if outcome is None:
            return
        await self._settled({outcome}, until_s)
        if not _is_committed(outcome):
            raise _error(target, outcome)

    async def _unacknowledged(self, placed: Sequence[Placed], acks: Acks, until_s: float) -> Sequence[Placed]:
        """Wait as `acks` says; return the shares that cannot be acknowledged."""
        if acks is Acks.ALL or any(one.target.leader.retries.denied for one in placed):
            await self._settled({one.outcome for one in placed}, until_s)
            return [one for one in placed if not _is_committed(one.outcome)]
        if acks is Acks.LEADER:
            bounded = await self._loss_bounded({(one.target.leader, one.outcome) for one in placed}, until_s)
            return [one for one in placed if one.outcome not in bounded]
        return ()

    async def _settled(self, outcomes: Collection[Outcome], until_s: float) -> None:
        """Return when all are committed or have failed, or at `until_s`."""
        if waiting := [outcome for outcome in outcomes if not outcome.done()]:
            await asyncio.wait(waiting, timeout=self._left_s(until_s))

    async def _loss_bounded(
        self, batches: Collection[tuple[ShardLeader, Outcome]], until_s: float
    ) -> Collection[Outcome]:
        """Wait until the loss windows are narrower than ``acks1.loss.max.ms``; return those batches of which that or
        the commit is true."""
        bound_s = self._acks1_loss_max_s
        for leader, outcome in batches:
            await leader.loss_window.wait_until_narrower(bound_s, outcome, self._left_s(until_s))
        return {
            outcome
            for leader, outcome in batches
            if _is_committed(outcome) or not (outcome.done() or leader.loss_window.is_wider(bound_s))
        }

    def _left_s(self, until_s: float) -> float:
        return max(0.0, until_s - self._clock.monotonic())


def _is_committed(outcome: Outcome) -> bool:
    return outcome.done() and outcome.result() is None


def _appended(placed: Placed, acks: Acks) -> Appended:
    share, append, start = placed.target.share, placed.append, placed.target.state.log_start_offset
    base_offset = None if acks is Acks.NONE else append.base_offset
    time_ms = share.timestamp_ms_max
    return Appended(share.partition, base_offset, append.count, time_ms, rows=share.rows, log_start_offset=start)


def _not_acknowledged(placed: Placed) -> Appended:
    return refused_share(placed.target.share, _error(placed.target, placed.outcome))


def refused_share(share: Share, error: TidelogError) -> Appended:
    return not_appended(share.partition, share.rows, share.records.num_rows, error)


def _error(target: Target, outcome: Outcome) -> Denied | Fenced | Unavailable:
    """Why the records of a batch are not known to be in the log."""
    if outcome.done() and (failure := outcome.result()):
        return failure.error()
    if denied := target.leader.retries.denied:
        return Denied(
            "the store refuses the broker's commits. The broker keeps the records and retries, so the outcome is "
            f"unknown. Retry with the same sequence; without one the records may be in the log twice. {denied}"
        )
    return Unavailable("the store did not confirm in time: the outcome is unknown. A retry may repeat the records")
