"""Steps the machines of the groups in memory, and does what each step decided.

    step -> changes to `GroupWrites`, replies once they are stored
         -> an assignment to a thread (`AssignmentRuns`), whose result is the next step
         -> the time of the next tick to `GroupTimer`

A machine that raises an error is dropped; its group is then read from the store again, and other groups go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.coordinator.groups.assignment_runs import AssignmentRuns
from tidelog.coordinator.groups.coordinator_seams import CoordinatorSeams
from tidelog.coordinator.groups.group_step import AssignmentTask, Moment, Reply
from tidelog.coordinator.groups.group_timer import GroupTimer
from tidelog.coordinator.groups.group_writes import GroupWrites
from tidelog.coordinator.groups.heartbeat_pace import paced
from tidelog.coordinator.groups.loaded_groups import LoadedGroup, LoadedGroups
from tidelog.coordinator.groups.open_requests import Given, OpenRequests
from tidelog.storage.errors import TidelogError, Unavailable
from tidelog.wire.groups import GroupRequest

_log = logging.getLogger(__name__)


class GroupSteps:
    def __init__(
        self,
        shard: int,
        seams: CoordinatorSeams,
        groups: LoadedGroups,
        requests: OpenRequests,
        writes: GroupWrites,
        timer: GroupTimer,
    ) -> None:
        self._shard = shard
        self._seams = seams
        self._groups = groups
        self._requests = requests
        self._writes = writes
        self._timer = timer
        self._counts = seams.counts
        self._assignments = AssignmentRuns(seams.assign, self._assigned, seams.counts)

    async def request(self, loaded: LoadedGroup, request: GroupRequest[Any]) -> Given:
        """Let the machine take `request`; return its reply. If the caller stops waiting, the request is withdrawn."""
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

    def tick(self, loaded: LoadedGroup) -> None:
        """Do what is due in the group."""
        self._step(loaded, partial(loaded.machine.tick, topics=self._seams.topics()))

    def notice_pause(self, moment: Moment) -> None:
        """Extend all sessions if this process was paused before `moment`. A turn of the timer over thousands of groups
        calls this now and then: a turn that takes long, because requests run between its steps, is no pause."""
        if self._timer.late(moment):
            self.extend_all(moment)
        else:
            self._timer.on_time(moment)

    def extend_all(self, moment: Moment) -> None:
        """Give all members a whole session: they could not renew theirs."""
        self._timer.on_time(moment)
        self._counts.extensions += 1
        if self._groups:
            _log.warning(
                "the store of groups was away, or this process was paused: the sessions of %d groups of shard %d begin "
                "anew",
                *(len(self._groups), self._shard),
            )
        for loaded in self._groups:
            loaded.machine.extend_sessions(moment)

    def take(self, loaded: LoadedGroup) -> None:
        """Do what the last step of the group decided."""
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

    def refuse_undecided(self, loaded: LoadedGroup, error: Callable[[], TidelogError]) -> None:
        """Fail the requests that the machine has not replied to."""
        while loaded.tickets:
            self._requests.fail(loaded.tickets.pop(), error())

    def end(self) -> None:
        """Stop computing assignments."""
        self._assignments.end()

    async def close(self) -> None:
        await self._assignments.close()

    def _step(self, loaded: LoadedGroup, step: Callable[[Moment], None]) -> None:
        moment = self._seams.moment()
        if self._timer.late(moment):
            self.extend_all(moment)
        try:
            step(moment)
            self.take(loaded)
        except Exception:
            _log.exception("group %s failed because of a defect; it is read from the store again", loaded.name)
            self._groups.remove(loaded)
            text = f"the broker failed on group {loaded.name!r}; its log has the cause. Retry"
            self.refuse_undecided(loaded, lambda: Unavailable(text))

    def _reply(self, loaded: LoadedGroup, reply: Reply) -> None:
        loaded.tickets.discard(reply.ticket)
        answer = paced(reply.answer, self._groups.members)

        def settle(error: TidelogError | None) -> None:
            self._requests.give(reply.ticket, Given(answer, error or reply.error, proved=True))

        if not self._writes.after(loaded.name, reply.rests_on, settle):
            self._requests.give(reply.ticket, Given(answer, reply.error, proved=False))

    def _assigned(self, group: str, task: AssignmentTask, target: Any) -> None:
        if loaded := self._groups.get(group):
            topics = self._seams.topics()
            self._step(loaded, partial(loaded.machine.assigned, topics=topics, epoch=task.epoch, target=target))
