"""Drives the state machines of all groups of one shard, for one leadership of it.

    call -> load the group, once -> step its machine -> changes to `GroupWrites`, replies once they are stored
                                                     -> assignments to a thread, their results back to the machine
    timer -> tick the groups that are due

- A reply that rests on no change is given after a proof that this broker still leads the shard, so a coordinator that
  was replaced, and does not know it, gives no outdated answer.
- When a write is fenced, the coordinator ends: all requests fail with `LeaderUnknown`, and the next one repeats
  them.
- Sessions end only while clients could have renewed them. If this process was paused, or the store was away, every
  member gets a whole session again (`extend_sessions`); while the store is away no group is ticked.
- A group that nobody uses is dropped from memory once it is stored.

Everything in memory can be read again from the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from tidelog.coordinator.groups.due_groups import DueGroups
from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_step import AssignmentTask, GroupMachine, Moment, Reply, Ticket, Topics
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.group_writes import GroupWrites, WriteBounds
from tidelog.storage.errors import Fenced, LeaderUnknown, Overloaded, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.storage.single_flight import SingleFlight
from tidelog.wire import groups as calls
from tidelog.wire.groups import GroupRequest

A = TypeVar("A")

RETRY_AFTER_S = 0.1
BUSY_RETRY_AFTER_S = 1.0
WAKE_S = 1.0
"""The timer runs at least this often while groups are in memory."""
PAUSE_S = 2.0
"""A timer that is later than this was paused with its process, or starved."""
STEPS_AT_ONCE = 100
"""After so many steps the timer lets requests run."""
LOADS_AT_ONCE = 32
_DROPS_AT_ONCE = 200
_KEEPING = (calls.FetchOffsets, calls.DescribeGroup, calls.ReadInstance, calls.ClassicHeartbeat)
"""Requests that seldom add changes; they are served even while many changes wait for the store."""

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


@dataclass
class _Loaded:
    """A group in memory, with its requests that wait for a reply."""

    name: str
    machine: GroupMachine
    used_ms: int
    tickets: set[Ticket] = field(default_factory=set)


class GroupCoordinator:
    """Takes requests until `close` or `end`, or until it is fenced."""

    def __init__(self, shard: int, seams: CoordinatorSeams, bounds: CoordinatorBounds) -> None:
        self.shard = shard
        self._seams = seams
        self._clock = seams.runtime.clock
        self._bounds = bounds
        self._counts = seams.counts
        self._writes = GroupWrites(seams.store, seams.runtime, bounds.writes, seams.counts, self._writes_ended)
        self._groups: OrderedDict[str, _Loaded] = OrderedDict()
        self._loads: SingleFlight[str, None] = SingleFlight()
        self._loading = asyncio.Semaphore(LOADS_AT_ONCE)
        self._replies: dict[Ticket, asyncio.Future[_Given]] = {}
        self._last_ticket = 0
        self._due = DueGroups()
        self._assignments: dict[str, AssignmentTask] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Task[None] | None = None
        self._earlier = asyncio.Event()
        self._wakes_at_ms = 0
        self._seen_ms = 0
        self._unproved = False
        self._was_away = False
        self._ticked_topics: Topics | None = None
        self._closing = False
        self.ended: str | None = None

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._replies)

    @property
    def loaded(self) -> int:
        """Groups in memory."""
        return len(self._groups)

    @property
    def machines(self) -> Mapping[str, GroupMachine]:
        """The groups in memory, for metrics."""
        return {name: loaded.machine for name, loaded in self._groups.items()}

    async def call(self, group: str, request: GroupRequest[A]) -> A:
        """Carry out `request`. Raises as `api.groups` says."""
        self._check_room(request)
        loaded = await self._loaded(group)
        given = await self._replied(loaded, request)
        if not given.stored_after:
            await self._prove()
        if given.error is not None:
            raise given.error
        return cast(A, given.answer)

    async def visit(self, group: str) -> None:
        """Load `group` and do what is due, although nobody calls it."""
        loaded = await self._loaded(group)
        self._step(loaded, partial(loaded.machine.tick, topics=self._seams.topics()))

    async def close(self, drain_s: float) -> None:
        """Refuse requests, store what was decided and answer, within `drain_s`, then end."""
        self._closing = True
        for loaded in tuple(self._groups.values()):
            self._refuse_undecided(loaded, self._moved)
        await self._writes.flush(drain_s)
        self.end("this broker released the shard")
        await asyncio.gather(*self._running(), return_exceptions=True)

    def end(self, reason: str) -> None:
        """Stop at once: requests without an answer fail with `LeaderUnknown`."""
        if self.ended is not None:
            return
        self.ended = reason
        self._writes.end(self._moved())
        for ticket in tuple(self._replies):
            self._fail(ticket, self._moved())
        for task in self._running():
            task.cancel()
        self._groups.clear()

    # Requests

    def _check_room(self, request: GroupRequest[Any]) -> None:
        if self._closing or self.ended is not None:
            raise self._moved()
        self._counts.requests[type(request).__name__] += 1
        if len(self._replies) >= self._bounds.requests_max:
            self._counts.refused += 1
            raise _busy(f"{self._bounds.requests_max} requests to groups wait for an answer already")
        if self._writes.full and not _keeps(request):
            self._counts.refused += 1
            raise _busy("the store of groups does not answer, and many changes wait for it already")

    async def _loaded(self, group: str) -> _Loaded:
        while (loaded := self._groups.get(group)) is None:  # it may be dropped again before this call continues
            self._ensure_timer()
            await self._loads.run(group, lambda: self._load(group))
            if self._closing or self.ended is not None:
                raise self._moved()
        loaded.used_ms = self._moment().monotonic_ms
        self._groups.move_to_end(group)
        return loaded

    async def _load(self, group: str) -> None:
        if group in self._groups:
            return
        await self._writes.stored(group)
        async with self._loading:
            found = await self._seams.store.load(group)
        if self.ended is not None:
            return
        self._make_room()
        moment = self._moment()
        loaded = _Loaded(group, self._seams.new_machine(group, found, moment), moment.monotonic_ms)
        self._groups[group] = loaded
        self._after_step(loaded)
        self._ensure_timer()

    async def _replied(self, loaded: _Loaded, request: GroupRequest[Any]) -> _Given:
        self._last_ticket += 1
        ticket = Ticket(self._last_ticket)
        reply: asyncio.Future[_Given] = asyncio.get_running_loop().create_future()
        self._replies[ticket] = reply
        loaded.tickets.add(ticket)
        topics = self._seams.topics()
        try:
            self._step(loaded, lambda moment: loaded.machine.handle(moment, topics, ticket, request))
            return await reply
        finally:
            del self._replies[ticket]
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

    def _step(self, loaded: _Loaded, step: Callable[[Moment], None]) -> None:
        moment = self._moment()
        if self._paused(moment):
            self._extend_all(moment)
        try:
            step(moment)
            self._after_step(loaded)
        except Exception:
            _log.exception("group %s failed because of a defect; it is read from the store again", loaded.name)
            self._drop_broken(loaded)

    def _after_step(self, loaded: _Loaded) -> None:
        outcome = loaded.machine.take()
        self._writes.add(loaded.name, outcome.changes)
        for reply in outcome.replies:
            self._give(loaded, reply)
        if outcome.task is not None:
            self._assign(loaded.name, outcome.task)
        self._due.schedule(loaded.name, loaded.machine.due_ms)
        next_ms = self._due.next_ms
        if next_ms is not None and next_ms < self._wakes_at_ms:
            self._earlier.set()

    def _give(self, loaded: _Loaded, reply: Reply) -> None:
        loaded.tickets.discard(reply.ticket)

        def settle(error: TidelogError | None) -> None:
            self._resolve(reply.ticket, _Given(reply.answer, error or reply.error, stored_after=True))

        if not self._writes.after(loaded.name, reply.rests_on, settle):
            self._resolve(reply.ticket, _Given(reply.answer, reply.error, stored_after=False))

    def _fail(self, ticket: Ticket, error: TidelogError) -> None:
        self._resolve(ticket, _Given(None, error, stored_after=True))

    def _resolve(self, ticket: Ticket, given: _Given) -> None:
        future = self._replies.get(ticket)
        if future is not None and not future.done():
            future.set_result(given)

    def _drop_broken(self, loaded: _Loaded) -> None:
        if self._groups.get(loaded.name) is loaded:
            del self._groups[loaded.name]
        text = f"the broker failed on group {loaded.name!r}; its log has the cause. Retry"
        self._refuse_undecided(loaded, lambda: Unavailable(text))

    def _refuse_undecided(self, loaded: _Loaded, error: Callable[[], TidelogError]) -> None:
        while loaded.tickets:
            self._fail(loaded.tickets.pop(), error())

    # Assignments

    def _assign(self, group: str, task: AssignmentTask) -> None:
        """A later task replaces one that has not begun, so a storm of joins leads to few assignments."""
        running = group in self._assignments
        self._assignments[group] = task
        if not running:
            self._spawn(self._run_assignments(group))

    async def _run_assignments(self, group: str) -> None:
        try:
            while True:
                task = self._assignments[group]
                target = await self._seams.assign(task.input)
                self._counts.assignments += 1
                if loaded := self._groups.get(group):
                    topics = self._seams.topics()
                    self._step(loaded, partial(loaded.machine.assigned, topics=topics, epoch=task.epoch, target=target))
                if self._assignments[group] is task:
                    return
        except Exception:
            _log.exception("no assignment could be computed for group %s", group)
        finally:
            self._assignments.pop(group, None)

    # Time

    def _ensure_timer(self) -> None:
        if self._timer is None or self._timer.done():
            self._seen_ms = int(self._clock.monotonic() * 1000)
            self._timer = asyncio.create_task(self._run_timer())

    async def _run_timer(self) -> None:
        while True:
            await self._sleep()
            try:
                await self._wake()
            except Exception:
                _log.exception("the timer of groups failed; it continues")
            if not (self._groups or self._replies) and self._writes.idle:
                return

    async def _sleep(self) -> None:
        """Until the next group is due, at most `WAKE_S`."""
        self._earlier.clear()
        now_ms = int(self._clock.monotonic() * 1000)
        latest_ms = now_ms + int(WAKE_S * 1000)
        due_ms = None if self._away else self._due.next_ms
        self._wakes_at_ms = latest_ms if due_ms is None else min(latest_ms, due_ms)
        waits = (
            asyncio.ensure_future(self._clock.sleep(max(0.0, (self._wakes_at_ms - now_ms) / 1000))),
            asyncio.ensure_future(self._earlier.wait()),
        )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._wakes_at_ms = 0
            for wait in waits:
                wait.cancel()

    async def _wake(self) -> None:
        moment = self._moment()
        self._writes.expire()
        if self._unproved:
            await self._try_to_prove()
        away, paused = self._away, self._paused(moment)
        self._seen_ms = moment.monotonic_ms
        if away or self._was_away or paused:
            self._was_away = away
            if not away:
                self._extend_all(self._moment())
            return
        self._notice_topics(moment)
        await self._tick_due(moment)
        self._drop_idle(moment)

    async def _try_to_prove(self) -> None:
        try:
            await self._prove()
        except TidelogError as error:
            _log.debug("cannot prove leadership of shard %d yet: %s", self.shard, error)

    async def _tick_due(self, moment: Moment) -> None:
        topics, steps = self._seams.topics(), 0
        for name in self._due.pop_until(moment.monotonic_ms):
            if loaded := self._groups.get(name):
                self._step(loaded, partial(loaded.machine.tick, topics=topics))
                steps += 1
                if steps % STEPS_AT_ONCE == 0:
                    await self._clock.sleep(0)

    def _notice_topics(self, moment: Moment) -> None:
        topics = self._seams.topics()
        if topics is not self._ticked_topics:
            self._ticked_topics = topics
            for name in self._groups:
                self._due.schedule(name, moment.monotonic_ms)

    @property
    def _away(self) -> bool:
        return self._writes.failing or self._unproved or not self._seams.reachable()

    def _paused(self, moment: Moment) -> bool:
        """Whether this process did not run for a while before `moment`."""
        return moment.monotonic_ms - self._seen_ms > (WAKE_S + PAUSE_S) * 1000

    def _extend_all(self, moment: Moment) -> None:
        """Give all members a whole session: they could not renew theirs."""
        self._seen_ms = moment.monotonic_ms
        self._counts.extensions += 1
        if self._groups:
            _log.info("sessions of %d groups of shard %d are extended", len(self._groups), self.shard)
        for loaded in self._groups.values():
            loaded.machine.extend_sessions(moment)

    def _moment(self) -> Moment:
        return Moment(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    # Memory

    def _drop_idle(self, moment: Moment) -> None:
        """Drop groups that nobody uses, beginning with the one that was called longest ago."""
        oldest_ms = moment.monotonic_ms - int(self._bounds.idle_s * 1000)
        for _ in range(min(_DROPS_AT_ONCE, len(self._groups))):
            loaded = next(iter(self._groups.values()))
            if loaded.used_ms > oldest_ms:
                return
            if not self._drop(loaded):
                loaded.used_ms = moment.monotonic_ms
                self._groups.move_to_end(loaded.name)

    def _make_room(self) -> None:
        """Raises `Overloaded` if no group can be dropped for another one."""
        if len(self._groups) < self._bounds.groups_max:
            return
        for loaded in tuple(self._groups.values())[:_DROPS_AT_ONCE]:
            if self._drop(loaded):
                return
        self._counts.refused += 1
        raise _busy(f"{self._bounds.groups_max} groups of the shard are in use already")

    def _drop(self, loaded: _Loaded) -> bool:
        if not loaded.machine.idle or loaded.tickets or self._writes.pending(loaded.name):
            return False
        del self._groups[loaded.name]
        return True

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

    def _running(self) -> tuple[asyncio.Task[None], ...]:
        mine = asyncio.current_task()
        timer = (self._timer,) if self._timer else ()
        return tuple(task for task in (*self._tasks, *timer) if task is not mine)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True, slots=True)
class _Given:
    """`stored_after`: the reply waited for a write, which proved that this broker is the coordinator."""

    answer: Any
    error: TidelogError | None
    stored_after: bool


def _keeps(request: GroupRequest[Any]) -> bool:
    """Whether `request` reads, or keeps a member in its group."""
    if isinstance(request, calls.Heartbeat):
        return request.member_epoch > calls.JOIN_EPOCH
    return isinstance(request, _KEEPING)


def _busy(reason: str) -> Overloaded:
    return Overloaded(f"{reason}. Retry later; the request was not applied", retry_after_s=BUSY_RETRY_AFTER_S)
