"""One read of a consumer instance: ``GET …/records``.

    read the state ─▶ join ─▶ commit of the last read ─▶ fetch ─▶ write the new positions, as a heartbeat ─▶ answer

The write compares versions. If another call has changed the instance, the records are dropped and the read begins
again, so two reads at the same time never answer the same record, and never leave one out.

The write is also the member's heartbeat: the coordinator refuses it if the member's assignment has changed. Then, and
if there are no records yet, the read sends a heartbeat of its own after each fetch, and drops the records of partitions
that the group has given to another member (inv. 8).

The write does not wait for the store: if the coordinator dies at this moment, its successor may know the position
before, and the records are answered once more (at least once). A write that begins a partition waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits, FetchPart
from tidelog.services.http.kafka_rest.instances.fetched_round import FetchedRound, offsets_after, round_of
from tidelog.services.http.kafka_rest.instances.instance_membership import Membership
from tidelog.services.http.kafka_rest.instances.instance_state import (
    advanced,
    begun,
    forgotten,
    in_turn,
    moved,
    rewound,
    sending,
)
from tidelog.services.http.kafka_rest.instances.kept_instance import ATTEMPTS_MAX, InstanceStore, KeptInstance
from tidelog.services.http.kafka_rest.instances.page_sending import PageToSend, Senders
from tidelog.services.http.kafka_rest.record_page import page_of
from tidelog.services.http.listener.waiting_requests import Draining
from tidelog.storage.errors import Conflict, StaleMemberEpoch
from tidelog.storage.runtime import Clock

FIRST_ASSIGNMENT_MS = 3_000
"""How long the first read waits for its partitions, even if its timeout is shorter."""
SETTLED_MS = 3_000
"""How long a read waits at least until the page before was sent. If another broker has to send it and did not by then,
the page is read again."""
RECONCILING_MS = 1_000
"""A shorter heartbeat interval says that the member still waits for partitions."""
HEARTBEAT_MS_MAX = 5_000
AUTO_COMMIT_MS = 1_000
"""A read commits the records of earlier reads, but not more often than this."""
PAUSE_FIRST_MS = 5
PAUSE_MAX_MS = 200

Hold: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]
"""Waits for something as long as the client does. Raises `ClientGone`, `Draining`."""
ReadState: TypeAlias = Callable[[], Awaitable[KeptInstance]]


@dataclass(frozen=True)
class ReadBounds:
    """The bounds of one page. `timeout_ms` None: as the instance was created."""

    max_records: int
    max_bytes: int
    timeout_ms: int | None


@dataclass(frozen=True)
class InstanceReads:
    """Reads for all instances."""

    broker: Broker
    store: InstanceStore
    membership: Membership
    senders: Senders
    clock: Clock

    async def read(self, read_state: ReadState, bounds: ReadBounds, hold: Hold) -> PageToSend:
        """The page of the next records; an empty one if none came within the timeout, or if other reads of the instance
        have overtaken this one `ATTEMPTS_MAX` times. Raises `RestError`."""
        began_s, stale, pause_ms = self.clock.monotonic(), False, PAUSE_FIRST_MS
        for _ in range(ATTEMPTS_MAX):
            kept = await read_state()
            timeout_ms = kept.state.config.request_timeout_ms if bounds.timeout_ms is None else bounds.timeout_ms
            end_s = began_s + timeout_ms / 1000
            try:
                if kept.state.unsent:
                    kept = await self._settled(kept, read_state, hold, max(end_s, began_s + SETTLED_MS / 1000))
                    if kept.state.unsent:
                        break
                return await _OneRead(self, kept, bounds, hold, end_s, stale=stale).run()
            except Draining:
                break
            except StaleMemberEpoch:
                stale = True
            except Conflict:
                await self.clock.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, PAUSE_MAX_MS)
        return PageToSend(b"[]", kept.with_state(msgspec.structs.replace(kept.state, unsent=None)))

    async def _settled(self, kept: KeptInstance, read_state: ReadState, hold: Hold, end_s: float) -> KeptInstance:
        """The instance once it has no unsent page. If its broker is gone, or does not say for `SETTLED_MS` that it has
        sent it, the page is read again: its client has given up, or gets the page twice."""
        began_s, pause_ms, first = self.clock.monotonic(), 1, kept.state.unsent
        while unsent := kept.state.unsent:
            now_s = self.clock.monotonic()
            silent = unsent == first and not self.senders.is_here(unsent) and now_s >= began_s + SETTLED_MS / 1000
            if silent or self.senders.is_gone(kept.context, unsent):
                return kept.with_state(rewound(kept.state))
            if now_s >= end_s:
                return kept
            await hold(self.clock.sleep(pause_ms / 1000))
            pause_ms = min(2 * pause_ms, PAUSE_MAX_MS)
            kept = await read_state()
        return kept


class _OneRead:
    """A read on one version of an instance. Nothing is written before its end. `stale`: the assignment of the instance
    has changed, so the read sends a heartbeat."""

    def __init__(
        self, reads: InstanceReads, kept: KeptInstance, bounds: ReadBounds, hold: Hold, end_s: float, *, stale: bool
    ) -> None:
        self._reads = reads
        self._before = kept
        self._kept = kept
        self._bounds = bounds
        self._hold = hold
        self._end_s = end_s
        self._stale = stale
        self._write_is_heartbeat = False
        self._interval_ms = HEARTBEAT_MS_MAX
        self._pause_ms = PAUSE_FIRST_MS

    async def run(self) -> PageToSend:
        """The page. Raises `Conflict` if another call has changed the instance, `StaleMemberEpoch` if the group has."""
        try:
            await self._join()
            self._kept = await self._reads.membership.auto_commit(self._kept, AUTO_COMMIT_MS)
            found = await self._records()
        except Draining:
            found = FetchedRound()
        try:
            if found.error is not None and not found.runs:
                raise found.error
            page = await page_of(found.runs, self._kept.state.config.format, found.size_bytes)
        except Exception:
            await self._write()
            raise
        if offsets := offsets_after(found, page):
            state = advanced(self._kept.state, offsets)
            me = self._reads.senders.me(self._kept.context)
            now_ms = self._reads.clock.now_ms()
            state = sending(state, self._reads.store.new_id(), me, self._kept.state, now_ms)
            self._kept = self._kept.with_state(state)
        return PageToSend(page.body, await self._write())

    async def _join(self) -> None:
        """The first heartbeat. A new member waits until it has partitions, or the group has none for it. A member that
        has some reads at once: the heartbeat after the fetch shows which of them it still has."""
        if self._kept.state.joined and self._kept.state.positions:
            return
        await self._heartbeat()
        end_s = max(self._end_s, self._reads.clock.monotonic() + FIRST_ASSIGNMENT_MS / 1000)
        while self._waits_for_partitions() and self._reads.clock.monotonic() < end_s:
            await self._pause()
            await self._heartbeat()

    def _waits_for_partitions(self) -> bool:
        state = self._kept.state
        return state.subscribed and not state.partitions and self._interval_ms < RECONCILING_MS

    async def _records(self) -> FetchedRound:
        """Fetch until there are records or the time is over."""
        parts, state = await self._fetch(0), self._kept.state
        found = round_of(parts, state.known)
        if state.settled and not self._stale and not found.outside and found.suffices(state.config.fetch_min_bytes):
            self._write_is_heartbeat = state.subscribed
            await self._move(found)
            return found
        while True:
            await self._heartbeat()
            found = round_of(parts, self._kept.state.known)
            await self._move(found)
            if found.suffices(state.config.fetch_min_bytes) or self._left_ms() <= 0:
                return found
            if found.runs or found.error or found.outside or not self._kept.state.positions:
                await self._pause()
                parts = await self._fetch(0)
            else:
                parts = await self._hold(self._fetch(min(self._left_ms(), self._interval_ms)))

    async def _move(self, found: FetchedRound) -> None:
        """Set the positions of partitions without records."""
        self._kept = replace(self._kept, state=moved(self._kept.state, found.moved))
        if found.outside:
            self._kept = replace(self._kept, state=forgotten(self._kept.state, found.outside))
            offsets = await self._reads.membership.first_offsets(self._kept, list(found.outside))
            self._kept = replace(self._kept, state=begun(self._kept.state, offsets))

    async def _heartbeat(self) -> None:
        heard = await self._reads.membership.heartbeat(self._kept)
        self._kept = await self._reads.membership.with_positions(heard.kept)
        self._interval_ms = min(heard.interval_ms, HEARTBEAT_MS_MAX)

    async def _fetch(self, wait_ms: int) -> Sequence[FetchedPart]:
        known, size_bytes = self._kept.state.known, self._bounds.max_bytes
        parts = [FetchPart(*one, known[one], size_bytes) for one in in_turn(sorted(known), self._kept.state.turn)]
        if not parts:
            return ()
        limits = FetchLimits(self._bounds.max_records, size_bytes, wait_ms)
        return await self._reads.broker.fetch_parts(self._kept.context, parts, limits)

    async def _pause(self) -> None:
        """Wait a moment, longer each time. The first read waits beyond its timeout."""
        await self._hold(self._reads.clock.sleep(self._pause_ms / 1000))
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MAX_MS)

    def _left_ms(self) -> int:
        return int((self._end_s - self._reads.clock.monotonic()) * 1000)

    async def _write(self) -> KeptInstance:
        """Raises `Conflict`."""
        before, after = self._before.state, self._kept.state
        if after == before:
            return self._kept
        begins = after.partitions != before.partitions or after.known.keys() != before.known.keys()
        return await self._reads.store.write(self._kept, durable=begins, as_member=self._write_is_heartbeat)
