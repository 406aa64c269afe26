"""Carries out what `decisions` decided: each move a task of its own, never two of one shard at a time.

So a claim that takes long delays no other shard. Claims and releases are bounded in number, `CLAIMS_MAX` and
`RELEASES_MAX` at a time; abandoning is never delayed.

A shard stays busy after its move until the mirror shows what the move wrote, so that the next decision is not made on
a picture from before it. One that could not be led rests, longer each time, before it is tried again.

Every write is a transaction that compares what it relies on. If its answer is lost, the outcome is read; if that fails
too, the key is found later, by the mirror, to say what is not so, and is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, LeaderRecord, encode_value
from tidelog.coordinator.kv.key_value import (
    Compare,
    DeleteKey,
    Field,
    KeyValueStore,
    LeaseLost,
    PutKey,
    absent,
    unchanged,
)
from tidelog.coordinator.leadership.cluster_picture import decode_epoch
from tidelog.coordinator.leadership.decisions import Abandon, GiveBack, Move, Reassert, Release, Take
from tidelog.coordinator.leadership.shard_host import ShardHost
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Denied, Fenced, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime

CLAIMS_MAX = 32
RELEASES_MAX = 8
READS_OF_OUTCOME_MAX = 3
FAILURES_IN_A_ROW_MAX = 3
_REST = Backoff(first_s=0.1, max_s=15.0)

_log = logging.getLogger(__name__)


class MovesObserver(Protocol):
    """Who is told how moves end."""

    def moved(self) -> None:
        """Some move has ended."""
        ...

    def fenced(self, shard: int, revision: int) -> None:
        """The log of `shard` had seen the epoch that the store gave out, at `revision`, as a new one."""
        ...

    def unable(self) -> None:
        """Claims have failed `FAILURES_IN_A_ROW_MAX` times in a row: others should lead what this broker cannot."""
        ...


class ShardMoves:
    """See the module's head. `lease_id` is what leader keys are put under; 0: no lease is held now, and no leader key
    is put. It is looked at when a key is put, since a move may have waited for its turn."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: ClusterKeys,
        host: ShardHost,
        me: BrokerRecord,
        runtime: Runtime,
        observer: MovesObserver,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._host = host
        self._me = me
        self._runtime = runtime
        self._observer = observer
        self._claims = asyncio.Semaphore(CLAIMS_MAX)
        self._releases = asyncio.Semaphore(RELEASES_MAX)
        self._running: dict[int, asyncio.Task[None]] = {}
        self._shown_from: dict[int, int] = {}
        self._failures: dict[int, int] = {}
        self._rest_until_s: dict[int, float] = {}
        self._unable = 0
        self.lease_id = 0

    # ---- what is on the move

    def busy(self, revision: int) -> frozenset[int]:
        """Shards on the move, or whose last move a picture of `revision` does not show yet."""
        self._shown_from = {shard: since for shard, since in self._shown_from.items() if since > revision}
        return frozenset(self._running) | frozenset(self._shown_from)

    def resting(self) -> frozenset[int]:
        """Shards that are not to be tried again yet."""
        now_s = self._runtime.clock.monotonic()
        return frozenset(shard for shard, until_s in self._rest_until_s.items() if now_s < until_s)

    def rests_until_s(self) -> float:
        """When the next shard has rested."""
        now_s = self._runtime.clock.monotonic()
        return min((until_s for until_s in self._rest_until_s.values() if now_s < until_s), default=float("inf"))

    def forget_revisions(self) -> None:
        """The store counts its revisions anew."""
        self._shown_from.clear()

    @property
    def idle(self) -> bool:
        """Whether nothing is on the move."""
        return not self._running

    def begin(self, moves: Iterable[Move]) -> None:
        """Start each of `moves`, whose shards are not busy."""
        for move in moves:
            assert move.shard not in self._running, f"shard {move.shard} is on the move"
            self._running[move.shard] = asyncio.create_task(self._run(move.shard, self._coroutine(move)))

    async def release_all(self) -> None:
        """Let go of everything that is led, without a word to the store; moves under way come to their end first."""
        while self._running or self._host.led():
            for shard in set(self._host.led()) - set(self._running):
                self._running[shard] = asyncio.create_task(self._run(shard, self._release_host(shard)))
            await asyncio.wait(tuple(self._running.values()))

    # ---- one move

    async def _run(self, shard: int, move: Coroutine[Any, Any, object]) -> None:
        try:
            await move
        except TidelogError as error:
            _log.warning("shard %d could not be moved; trying again: %s", shard, error)
            self._rest(shard)
        except Exception:
            _log.exception("shard %d could not be moved; trying again", shard)
            self._rest(shard)
        finally:
            del self._running[shard]
            self._observer.moved()

    def _coroutine(self, move: Move) -> Coroutine[Any, Any, object]:
        match move:
            case Take():
                return self._take(move)
            case Release():
                return self._release(move)
            case Abandon():
                return self._host.abandon(move.shard)
            case Reassert():
                return self._reassert(move)
            case GiveBack():
                return self._delete_key(move.shard, move.epoch)

    async def _take(self, take: Take) -> None:
        async with self._claims:
            if not await self._win_key(take):
                self._rest(take.shard)
                return
            try:
                await self._host.lead(take.shard, take.epoch)
            except Fenced:
                await self._note_fencing(take)
                self._rest(take.shard)
                await self._delete_key(take.shard, take.epoch)
            except TidelogError as error:
                _log.warning("shard %d could not be led in epoch %d: %s", take.shard, take.epoch, error)
                if isinstance(error, Denied | Unavailable):  # this broker's trouble, not the log's
                    self._count_unable()
                self._rest(take.shard)
                await self._delete_key(take.shard, take.epoch)
            else:
                _log.info("shard %d is led here in epoch %d", take.shard, take.epoch)
                self._failures.pop(take.shard, None)
                self._unable = 0

    async def _win_key(self, take: Take) -> bool:
        """Whether the key and its epoch are ours now."""
        keys, shard = self._keys, take.shard
        compares = [
            unchanged(take.former.item) if take.former else absent(keys.leader(shard)),
            unchanged(take.stored.item) if take.stored else absent(keys.epoch(shard)),
        ]
        puts = [
            PutKey(keys.epoch(shard), b"%d" % take.epoch),
            self._put_leader(shard, take.epoch),
        ]
        try:
            result = await self._kv.transact(compares, puts)
        except Unavailable as error:
            _log.info("shard %d: whether it was taken is not known, asking: %s", shard, error)
            return await self._was_written(shard, take.epoch)
        if result.succeeded:
            self._shown_from[shard] = result.revision
        return result.succeeded

    async def _was_written(self, shard: int, epoch: int) -> bool:
        """Whether a transaction whose answer was lost put our key. Raises `Unavailable`."""
        failures = 0
        while True:
            try:
                found = await self._kv.get(self._keys.leader(shard))
            except Unavailable:
                failures += 1
                if failures == READS_OF_OUTCOME_MAX:
                    raise
                await self._runtime.clock.sleep(_REST.delay_s(failures, self._runtime.entropy))
            else:
                if found is None or found.value != self._value(epoch):
                    return False
                self._shown_from[shard] = found.mod_revision
                return True

    async def _note_fencing(self, take: Take) -> None:
        """The log is ahead of us: if the store is too, another took the shard meanwhile. If not, the store is older
        than the log."""
        key = self._keys.epoch(take.shard)
        stored = await self._kv.get(key)
        if stored is not None and decode_epoch(key, stored.value) > take.epoch:
            return
        self._observer.fenced(take.shard, stored.mod_revision if stored else 0)
        _log.error("shard %d: the log has seen epoch %d or a later one before", take.shard, take.epoch)

    async def _release(self, release: Release) -> None:
        await self._release_host(release.shard)
        if await self._delete_key(release.shard, release.epoch):
            _log.info("shard %d is released", release.shard)
        else:
            _log.info("shard %d is let go: its key was not this broker's any more", release.shard)

    async def _release_host(self, shard: int) -> None:
        async with self._releases:
            await self._host.release(shard)

    async def _reassert(self, move: Reassert) -> None:
        key = self._keys.leader(move.shard)
        compares = [
            unchanged(move.former.item) if move.former else absent(key),
            Compare(self._keys.epoch(move.shard), Field.VALUE, b"%d" % move.epoch),
        ]
        result = await self._kv.transact(compares, [self._put_leader(move.shard, move.epoch)])
        if result.succeeded:
            self._shown_from[move.shard] = result.revision
            _log.info("shard %d: still led here in epoch %d", move.shard, move.epoch)

    async def _delete_key(self, shard: int, epoch: int) -> bool:
        """Delete the leader key if it is ours still; whether it was."""
        key = self._keys.leader(shard)
        result = await self._kv.transact([Compare(key, Field.VALUE, self._value(epoch))], [DeleteKey(key)])
        if result.succeeded:
            self._shown_from[shard] = result.revision
        return result.succeeded

    def _put_leader(self, shard: int, epoch: int) -> PutKey:
        """Raises `LeaseLost`: a key without a lease would outlive this process."""
        if not self.lease_id:
            raise LeaseLost(f"the lease was lost before shard {shard} had its turn")
        return PutKey(self._keys.leader(shard), self._value(epoch), self.lease_id)

    def _count_unable(self) -> None:
        self._unable += 1
        if self._unable % FAILURES_IN_A_ROW_MAX == 0:
            self._observer.unable()

    def _rest(self, shard: int) -> None:
        self._failures[shard] = failures = self._failures.get(shard, 0) + 1
        delay_s = _REST.delay_s(failures, self._runtime.entropy)
        self._rest_until_s[shard] = self._runtime.clock.monotonic() + delay_s

    def _value(self, epoch: int) -> bytes:
        return encode_value(LeaderRecord(self._me.broker_id, self._me.incarnation, epoch))
