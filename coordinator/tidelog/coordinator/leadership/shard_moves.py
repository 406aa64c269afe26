"""Carries out the moves that `decide` returned: each in a task of its own, at most one per shard at a time.

A slow claim therefore delays no other shard. At most `CLAIMS_MAX` claims and `RELEASES_MAX` releases run at a time; a
shard is abandoned at once.

A shard stays busy after its move until the mirror shows the move's writes, so no decision uses an older snapshot.
After a failed move a shard rests before the next try, longer each time.

Every write is a transaction that compares what it relies on. If its answer is lost, the outcome is read. If that fails
too, the mirror later shows a key of a shard that is not led here, and the key is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Protocol

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, LeaderRecord, encode_value
from tidelog.coordinator.kv.key_value import (
    DeleteKey,
    HasValue,
    KeyValueStore,
    LeaseLost,
    PutKey,
    as_read,
)
from tidelog.coordinator.leadership.cluster_snapshot import decode_epoch
from tidelog.coordinator.leadership.decisions import Abandon, GiveBack, Move, Reassert, Release, Take
from tidelog.coordinator.leadership.shard_host import ShardHost
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Denied, Fenced, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime

CLAIMS_MAX = 32
RELEASES_MAX = 8
FAILURES_IN_A_ROW_MAX = 3
_REST = Backoff(first_s=0.1, max_s=15.0)

_log = logging.getLogger(__name__)


class MovesObserver(Protocol):
    """Hears how moves end."""

    def wake(self) -> None:
        """A move has ended."""
        ...

    def log_is_ahead(self, shard: int, revision: int) -> None:
        """The log of `shard` has already seen the epoch that the store assigned at `revision`."""
        ...

    def claims_fail(self) -> None:
        """`FAILURES_IN_A_ROW_MAX` claims in a row have failed: other brokers should try."""
        ...


class ShardMoves:
    """See the module docstring. Leader keys are put under `lease_id`; while it is 0, no leader key is put. It is read
    when a key is put, because a move may have waited for its turn."""

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

    def busy(self, revision: int) -> frozenset[int]:
        """Shards with a move in progress, or whose last move a snapshot of `revision` does not show yet."""
        self._shown_from = {shard: since for shard, since in self._shown_from.items() if since > revision}
        return frozenset(self._running) | frozenset(self._shown_from)

    def settled(self, revision: int) -> Mapping[int, int]:
        """The epochs of the shards that are led here and not busy: a snapshot of `revision` must show their keys."""
        busy = self.busy(revision)
        return {shard: epoch for shard, epoch in self._host.led().items() if shard not in busy}

    def resting(self) -> frozenset[int]:
        """Shards that must not be tried again yet."""
        now_s = self._runtime.clock.monotonic()
        return frozenset(shard for shard, until_s in self._rest_until_s.items() if now_s < until_s)

    def rests_until_s(self) -> float:
        """When the next shard may be tried again."""
        now_s = self._runtime.clock.monotonic()
        return min((until_s for until_s in self._rest_until_s.values() if now_s < until_s), default=float("inf"))

    def forget_revisions(self) -> None:
        """The store's revision went back."""
        self._shown_from.clear()

    @property
    def idle(self) -> bool:
        """Whether no move is in progress."""
        return not self._running

    def begin(self, moves: Iterable[Move]) -> None:
        """Start each of `moves`; their shards must not be busy."""
        for move in moves:
            assert move.shard not in self._running, f"shard {move.shard} has a move in progress"
            self._running[move.shard] = asyncio.create_task(self._run(move.shard, self._coroutine(move)))

    async def release_all(self) -> None:
        """Release all shards without writing to the store. Moves in progress are completed first."""
        while self._running or self._host.led():
            for shard in set(self._host.led()) - set(self._running):
                self._running[shard] = asyncio.create_task(self._run(shard, self._release_host(shard)))
            await asyncio.wait(tuple(self._running.values()))

    async def _run(self, shard: int, move: Coroutine[Any, Any, object]) -> None:
        try:
            await move
        except TidelogError as error:
            _log.warning("shard %d: the move failed, retrying: %s", shard, error)
            self._rest(shard)
        except Exception:
            _log.exception("shard %d: the move failed, retrying", shard)
            self._rest(shard)
        finally:
            del self._running[shard]
            self._observer.wake()

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
            except TidelogError as error:
                if isinstance(error, Fenced):
                    await self._note_fencing(take)
                else:
                    _log.warning("shard %d: could not lead it in epoch %d: %s", take.shard, take.epoch, error)
                if isinstance(error, Denied | Unavailable):  # this broker cannot use the bucket; another one may
                    self._count_unable()
                self._rest(take.shard)
                await self._delete_key(take.shard, take.epoch)
            else:
                _log.info("shard %d is led here in epoch %d", take.shard, take.epoch)
                self._failures.pop(take.shard, None)
                self._unable = 0

    async def _win_key(self, take: Take) -> bool:
        """Put the leader key and the epoch; returns whether they are ours now."""
        keys, shard = self._keys, take.shard
        compares = [
            as_read(keys.leader(shard), take.former.item if take.former else None),
            as_read(keys.epoch(shard), take.stored.item if take.stored else None),
        ]
        puts = [PutKey(keys.epoch(shard), b"%d" % take.epoch), self._put_leader(shard, take.epoch)]
        try:
            result = await self._kv.transact(compares, puts)
        except Unavailable as error:
            _log.info("shard %d: the answer to the claim was lost, reading the key: %s", shard, error)
            found = await self._kv.get(keys.leader(shard))
            if found is None or found.value != self._value(take.epoch):
                return False
            self._shown_from[shard] = found.mod_revision
            return True
        if result.succeeded:
            self._shown_from[shard] = result.revision
        return result.succeeded

    async def _note_fencing(self, take: Take) -> None:
        """The log is ahead of our epoch. If the store is, too, another broker took the shard meanwhile; else the store
        is older than the log."""
        key = self._keys.epoch(take.shard)
        stored = await self._kv.get(key)
        if stored is not None and decode_epoch(key, stored.value) > take.epoch:
            return
        self._observer.log_is_ahead(take.shard, stored.mod_revision if stored else 0)
        _log.error(
            "shard %d: the log has already seen epoch %d or a later one; etcd is older than the log",
            take.shard,
            take.epoch,
        )

    async def _release(self, release: Release) -> None:
        await self._release_host(release.shard)
        if await self._delete_key(release.shard, release.epoch):
            _log.info("shard %d is released", release.shard)
        else:
            _log.info("shard %d is released; its key was not this broker's any more", release.shard)

    async def _release_host(self, shard: int) -> None:
        async with self._releases:
            await self._host.release(shard)

    async def _reassert(self, move: Reassert) -> None:
        key = self._keys.leader(move.shard)
        compares = [
            as_read(key, move.former.item if move.former else None),
            HasValue(self._keys.epoch(move.shard), b"%d" % move.epoch),
        ]
        result = await self._kv.transact(compares, [self._put_leader(move.shard, move.epoch)])
        if result.succeeded:
            self._shown_from[move.shard] = result.revision
            _log.info("shard %d: still led here in epoch %d", move.shard, move.epoch)

    async def _delete_key(self, shard: int, epoch: int) -> bool:
        """Delete the leader key if it is still ours; returns whether it was."""
        key = self._keys.leader(shard)
        result = await self._kv.transact([HasValue(key, self._value(epoch))], [DeleteKey(key)])
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
            self._observer.claims_fail()

    def _rest(self, shard: int) -> None:
        self._failures[shard] = failures = self._failures.get(shard, 0) + 1
        delay_s = _REST.delay_s(failures, self._runtime.entropy)
        self._rest_until_s[shard] = self._runtime.clock.monotonic() + delay_s

    def _value(self, epoch: int) -> bytes:
        return encode_value(LeaderRecord(self._me.broker_id, self._me.incarnation, epoch))
