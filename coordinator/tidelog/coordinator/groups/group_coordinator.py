"""Drives the state machines of all groups of one shard, for one leadership of it.

    call -> load the group, once -> step its machine -> changes to `GroupWrites`, replies once they are stored
                                                     -> assignments to a thread, their results back to the machine
    `GroupTimer` -> tick the groups that are due

- A reply that depends on no change is sent after a proof that this broker still leads the shard. So a coordinator that
  was replaced, and does not know it, sends no outdated answer.
- When a write is fenced, the coordinator ends: all requests fail with `LeaderUnknown`, and the next one repeats them.
- A session ends only if the client could have renewed it. If this process was paused, or the store was down, every
  member gets a full session again (`extend_sessions`); while the store is down, no group is ticked.

Everything in memory can be read again from the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from tidelog.coordinator.groups.assignment_runs import AssignmentRuns
from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_step import AssignmentTask, GroupMachine, Moment, Reply, Topics
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.group_timer import GroupTimer
from tidelog.coordinator.groups.group_writes import GroupWrites, WriteBounds
from tidelog.coordinator.groups.heartbeat_pace import paced
from tidelog.coordinator.groups.loaded_groups import LoadedGroup, LoadedGroups
from tidelog.coordinator.groups.open_requests import Given, OpenRequests
from tidelog.storage.errors import Fenced, LeaderUnknown, Overloaded, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.storage.single_flight import SingleFlight
from tidelog.wire import groups as calls
from tidelog.wire.classic_groups import ClassicHeartbeat
from tidelog.wire.groups import GroupRequest

A = TypeVar("A")

RETRY_AFTER_S = 0.1
BUSY_RETRY_AFTER_S = 1.0
STEPS_AT_ONCE = 100
"""After so many steps the timer lets requests run."""
LOADS_AT_ONCE = 32
COUNT_EVERY_MS = 1_000
_READING = (calls.FetchOffsets, calls.DescribeGroup, calls.ReadInstance, ClassicHeartbeat)

_log = logging.getLogger(__name__)

NewMachine = Callable[[str, Mapping[str, bytes], Moment], GroupMachine]
"""Makes the machine of a group of what the store has of it, loaded at a moment."""


@dataclass(frozen=True)
class CoordinatorBounds:
    """`groups_max`: groups in memory. `requests_max`: requests without an answer. `idle_s`: a group that nobody has
    called for this long is dropped from memory, if it is idle."""

    writes: WriteBounds = field(default_factory=WriteBounds)
    groups_max: int = 20_000
    requests_max: int = 20_000
    idle_s: float = 60.0


@dataclass(frozen=True)
class CoordinatorSeams:
    """The surroundings of a coordinator. `assign` computes an assignment off the event loop. `prove` returns once it is
    proved that this broker led the shard at a moment of the call; it raises `NotLeader`, `LeaderUnknown`,
    `Unavailable`. `reachable`: whether the store answers, as far as is known."""

    store: GroupStore
    new_machine: NewMachine
    assign: Callable[[Any], Awaitable[Any]]
    topics: Callable[[], Topics]
    prove: Callable[[], Awaitable[None]]
    reachable: Callable[[], bool]
    runtime: Runtime
    counts: GroupCounts


class GroupCoordinator:
    """Takes requests until `close` or `end`, or until it is fenced. `ended`: why it takes none any more."""

    def __init__(self, shard: int, seams: CoordinatorSeams, bounds: CoordinatorBounds) -> None:
        self.shard = shard
        self.ended: str | None = None
        self._seams = seams
        self._clock = seams.runtime.clock
        self._bounds = bounds
        self._counts = seams.counts
        self._writes = GroupWrites(seams.store, seams.runtime, bounds.writes, seams.counts, self._writes_ended)
        self._groups = LoadedGroups(bounds.groups_max, bounds.idle_s, lambda group: not self._writes.pending(group))
        self._loads: SingleFlight[str, None] = SingleFlight()
        self._loads_at_once = asyncio.Semaphore(LOADS_AT_ONCE)
        self._requests = OpenRequests()
        self._calls = 0
        self._assignments = AssignmentRuns(seams.assign, self._assigned, seams.counts)
        self._timer = GroupTimer(self._clock, self._wake, lambda: self._away)
        self._members = 0
        self._counted_at_ms = 0
        self._unproved = False
        self._was_away = False
        self._ticked_topics: Topics | None = None
        self._closing = False

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return self._calls

    @property
    def loaded(self) -> LoadedGroups:
        """The groups in memory."""
        return self._groups

    async def call(self, group: str, request: GroupRequest[A]) -> A:
        """Carry out `request`. Raises as `api.groups` says."""
        self._check_room(request)
        self._calls += 1
        try:
            given = await self._given(await self._loaded(group), request)
            if not given.proved:
                await self._prove()
        finally:
            self._calls -= 1
        if given.error is not None:
            raise given.error
        if isinstance(request, calls.CommitOffsets):
            self._counts.offsets += len(request.offsets)
        return cast(A, given.answer)

    async def visit(self, group: str) -> None:
        """Load `group` and do what is due, without a call of a client."""
        loaded = await self._loaded(group)
        self._step(loaded, partial(loaded.machine.tick, topics=self._seams.topics()))

    async def close(self, drain_s: float) -> None:
        """Refuse requests, store what was decided and answer, within `drain_s`, then end."""
        self._closing = True
        for loaded in self._groups:
            self._refuse_undecided(loaded, self._moved)
        await self._writes.flush(drain_s)
        self.end("this broker released the shard")
        await self._assignments.close()
        await self._timer.close()

    def end(self, reason: str) -> None:
        """Stop at once: requests without an answer fail with `LeaderUnknown`."""
        if self.ended is not None:
            return
        self.ended = reason
        self._writes.end(self._moved())
        for ticket in self._requests.tickets():
            self._requests.fail(ticket, self._moved())
        self._assignments.end()
        self._timer.end()
        self._groups.clear()

    # Requests

    def _check_room(self, request: GroupRequest[Any]) -> None:
        if self._closing or self.ended is not None:
            raise self._moved()
        self._counts.requests[type(request).__name__] += 1
        if self._calls >= self._bounds.requests_max:
            raise self._busy(f"{self._bounds.requests_max} requests to groups wait already (group.requests.max)")
        if self._writes.full and not _reads_or_keeps(request):
            raise self._busy("the store of groups does not answer, and many changes wait for it already")

    async def _loaded(self, group: str) -> LoadedGroup:
        while (loaded := self._groups.get(group)) is None:  # it may be dropped again before this call continues
            self._timer.ensure()
            await self._loads.run(group, lambda: self._load(group))
            if self._closing or self.ended is not None:
                raise self._moved()
        self._groups.use(loaded, self._moment().monotonic_ms)
        return loaded

    async def _load(self, group: str) -> None:
        if self._groups.get(group):
            return
        await self._writes.stored(group)
        found = await self._read(group)
        if self.ended is not None:
            return
        moment = self._moment()
        loaded = LoadedGroup(group, self._seams.new_machine(group, found, moment), moment.monotonic_ms)
        self._groups.add(loaded)
        self._after_step(loaded)
        self._timer.ensure()

    async def _read(self, group: str) -> Mapping[str, bytes]:
        """All keys of `group`. Raises `Unavailable` if the store does not answer in time."""
        try:
            async with asyncio.timeout(self._bounds.writes.wait_s), self._loads_at_once:
                return await self._seams.store.load(group)
        except TimeoutError:
            raise Unavailable(
                f"the store of groups did not answer in time; group {group!r} is not known. Retry"
            ) from None

    async def _given(self, loaded: LoadedGroup, request: GroupRequest[Any]) -> Given:
        topics = self._seams.topics()
        with self._requests.opened() as (ticket, given):
            loaded.tickets.add(ticket)
            try:
                self._step(loaded, lambda moment: loaded.machine.handle(moment, topics, ticket, request))
                return await given
            finally:
                if ticket in loaded.tickets:  # the caller does not wait any more
                    loaded.tickets.discard(ticket)
                    if self._groups.get(loaded.name) is loaded:
                        self._step(loaded, lambda moment: loaded.machine.withdraw(moment, ticket))

    async def _prove(self) -> None:
        try:
            await self._seams.prove()
        except Overloaded:
            raise
        except Unavailable:
            self._unproved = True
            raise
        self._unproved = False

    # Steps

    def _step(self, loaded: LoadedGroup, step: Callable[[Moment], None]) -> None:
        moment = self._moment()
        if self._timer.late(moment):
            self._extend_all(moment)
        try:
            step(moment)
            self._after_step(loaded)
        except Exception:
            _log.exception("group %s failed because of a defect; it is read from the store again", loaded.name)
            self._groups.remove(loaded)
            text = f"the broker failed on group {loaded.name!r}; its log has the cause. Retry"
            self._refuse_undecided(loaded, lambda: Unavailable(text))

    def _after_step(self, loaded: LoadedGroup) -> None:
        outcome = loaded.machine.take()
        self._writes.add(loaded.name, outcome.changes)
        for reply in outcome.replies:
            self._reply(loaded, reply)
        for event in outcome.events:
            self._counts.events[event.kind] += 1
            _log.info("group %s: %s", loaded.name, event.text)
        if outcome.task is not None:
            self._assignments.want(loaded.name, outcome.task)
        self._timer.schedule(loaded.name, loaded.machine.due_ms)

    def _reply(self, loaded: LoadedGroup, reply: Reply) -> None:
        loaded.tickets.discard(reply.ticket)
        answer = paced(reply.answer, self._members)

        def settle(error: TidelogError | None) -> None:
            self._requests.give(reply.ticket, Given(answer, error or reply.error, proved=True))

        if not self._writes.after(loaded.name, reply.rests_on, settle):
            self._requests.give(reply.ticket, Given(answer, reply.error, proved=False))

    def _refuse_undecided(self, loaded: LoadedGroup, error: Callable[[], TidelogError]) -> None:
        while loaded.tickets:
            self._requests.fail(loaded.tickets.pop(), error())

    def _assigned(self, group: str, task: AssignmentTask, target: Any) -> None:
        if loaded := self._groups.get(group):
            topics = self._seams.topics()
            self._step(loaded, partial(loaded.machine.assigned, topics=topics, epoch=task.epoch, target=target))

    # Time

    async def _wake(self, moment: Moment) -> bool:
        """A turn of the timer. Returns whether it is needed on."""
        self._writes.expire()
        self._count_members(moment)
        if self._unproved:
            await self._try_to_prove()
        if self._away:
            self._was_away = True
        else:
            if self._was_away or self._timer.late(moment):
                self._was_away = False
                self._extend_all(moment)
            self._notice_topics(moment)
            await self._tick_due(moment)
            self._groups.drop_idle(moment.monotonic_ms)
        return bool(self._groups or self._requests) or not self._writes.idle

    def _count_members(self, moment: Moment) -> None:
        """Once a second, because a coordinator may have thousands of groups."""
        if moment.monotonic_ms - self._counted_at_ms >= COUNT_EVERY_MS:
            self._counted_at_ms = moment.monotonic_ms
            self._members = sum(loaded.machine.member_count for loaded in self._groups)

    async def _try_to_prove(self) -> None:
        try:
            await self._prove()
        except TidelogError as error:
            _log.debug("cannot prove leadership of shard %d yet: %s", self.shard, error)

    async def _tick_due(self, moment: Moment) -> None:
        topics = self._seams.topics()
        for count, name in enumerate(tuple(self._timer.due(moment)), 1):
            if loaded := self._groups.get(name):
                self._step(loaded, partial(loaded.machine.tick, topics=topics))
            if count % STEPS_AT_ONCE == 0:
                await self._clock.sleep(0)

    def _notice_topics(self, moment: Moment) -> None:
        topics = self._seams.topics()
        if topics is not self._ticked_topics:
            self._ticked_topics = topics
            for loaded in self._groups:
                self._timer.schedule(loaded.name, moment.monotonic_ms)

    @property
    def _away(self) -> bool:
        return self._writes.failing or self._unproved or not self._seams.reachable()

    def _extend_all(self, moment: Moment) -> None:
        """Give all members a whole session: they could not renew theirs."""
        self._timer.on_time(moment)
        self._counts.extensions += 1
        if self._groups:
            _log.warning(
                "the store of groups was away, or this process was paused: the sessions of %d groups of shard %d begin "
                "anew",
                *(len(self._groups), self.shard),
            )
        for loaded in self._groups:
            loaded.machine.extend_sessions(moment)

    def _moment(self) -> Moment:
        return Moment(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    # The end

    def _writes_ended(self, error: Exception) -> None:
        if isinstance(error, Fenced):
            _log.warning("shard %d: another broker coordinates its groups now: %s", self.shard, error)
        else:
            _log.error("the groups of shard %d are read from the store again: %s", self.shard, error, exc_info=error)
        self.end(str(error))

    def _moved(self) -> LeaderUnknown:
        text = f"the groups of shard {self.shard} move to another coordinator. Retry"
        return LeaderUnknown(text, retry_after_s=RETRY_AFTER_S)

    def _busy(self, reason: str) -> Overloaded:
        self._counts.refused += 1
        return Overloaded(f"{reason}. Retry later; the request was not applied", retry_after_s=BUSY_RETRY_AFTER_S)


def _reads_or_keeps(request: GroupRequest[Any]) -> bool:
    """Whether `request` reads, or keeps a member in its group: it seldom adds changes."""
    if isinstance(request, calls.Heartbeat):
        return request.member_epoch > calls.JOIN_EPOCH
    return isinstance(request, _READING)
