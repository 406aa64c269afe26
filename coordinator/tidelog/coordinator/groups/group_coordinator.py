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

import logging
from typing import Any, TypeVar, cast

from tidelog.coordinator.groups.coordinator_seams import CoordinatorBounds, CoordinatorSeams
from tidelog.coordinator.groups.group_loading import GroupLoading
from tidelog.coordinator.groups.group_step import Moment
from tidelog.coordinator.groups.group_steps import GroupSteps
from tidelog.coordinator.groups.group_timer import GroupTimer
from tidelog.coordinator.groups.group_turns import GroupTurns
from tidelog.coordinator.groups.group_writes import GroupWrites
from tidelog.coordinator.groups.leadership_proofs import LeadershipProofs
from tidelog.coordinator.groups.loaded_groups import LoadedGroups
from tidelog.coordinator.groups.open_requests import OpenRequests
from tidelog.storage.errors import Fenced, LeaderUnknown, Overloaded
from tidelog.wire import groups as calls
from tidelog.wire.classic_groups import ClassicHeartbeat
from tidelog.wire.groups import GroupRequest

A = TypeVar("A")

RETRY_AFTER_S = 0.1
BUSY_RETRY_AFTER_S = 1.0
_READING = (calls.FetchOffsets, calls.DescribeGroup, calls.ReadInstance, ClassicHeartbeat)

_log = logging.getLogger(__name__)


class GroupCoordinator:
    """Takes requests until `close` or `end`, or until it is fenced. `ended`: why it takes none any more."""

    def __init__(self, shard: int, seams: CoordinatorSeams, bounds: CoordinatorBounds) -> None:
        self.shard = shard
        self.ended: str | None = None
        self._bounds = bounds
        self._counts = seams.counts
        self._calls = 0
        self._closing = False
        self._writes = GroupWrites(seams.store, seams.runtime, bounds.writes, seams.counts, self._writes_ended)
        self._groups = LoadedGroups(bounds.groups_max, bounds.idle_s, lambda group: not self._writes.pending(group))
        self._requests = OpenRequests()
        self._proofs = LeadershipProofs(seams.prove)
        self._timer = GroupTimer(seams.runtime.clock, self._turn, lambda: self._turns.away)
        self._steps = GroupSteps(shard, seams, self._groups, self._requests, self._writes, self._timer)
        self._turns = GroupTurns(seams, self._groups, self._writes, self._proofs, self._timer, self._steps)
        self._loading = GroupLoading(seams, bounds.writes.wait_s, self._groups, self._writes, self._timer, self._steps)

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
            given = await self._steps.request(await self._loading.loaded(group, self._check_open), request)
            if not given.proved:
                await self._proofs.prove()
        finally:
            self._calls -= 1
        if given.error is not None:
            raise given.error
        if isinstance(request, calls.CommitOffsets):
            self._counts.offsets += len(request.offsets)
        return cast(A, given.answer)

    async def visit(self, group: str) -> None:
        """Load `group` and do what is due, without a call of a client."""
        self._steps.tick(await self._loading.loaded(group, self._check_open))

    async def close(self, drain_s: float) -> None:
        """Refuse requests, store what was decided and answer, within `drain_s`, then end."""
        self._closing = True
        for loaded in self._groups:
            self._steps.refuse_undecided(loaded, self._moved)
        await self._writes.flush(drain_s)
        self.end("this broker released the shard")
        await self._steps.close()
        await self._timer.close()

    def end(self, reason: str) -> None:
        """Stop at once: requests without an answer fail with `LeaderUnknown`."""
        if self.ended is not None:
            return
        self.ended = reason
        self._writes.end(self._moved())
        for ticket in self._requests.tickets():
            self._requests.fail(ticket, self._moved())
        self._steps.end()
        self._timer.end()
        self._groups.clear()

    async def _turn(self, moment: Moment) -> bool:
        """A turn of the timer. Returns whether it is needed on."""
        await self._turns.turn(moment)
        return bool(self._groups or self._requests) or not self._writes.idle

    def _check_open(self) -> None:
        if self._closing or self.ended is not None:
            raise self._moved()

    def _check_room(self, request: GroupRequest[Any]) -> None:
        self._check_open()
        self._counts.requests[type(request).__name__] += 1
        if self._calls >= self._bounds.requests_max:
            raise self._busy(f"{self._bounds.requests_max} requests to groups wait already (group.requests.max)")
        if self._writes.full and not _reads_or_keeps(request):
            raise self._busy("the store of groups does not answer, and many changes wait for it already")

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
