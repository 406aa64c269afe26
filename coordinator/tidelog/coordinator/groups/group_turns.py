"""The turns of a coordinator's timer. Each turn fails replies that wait too long, ticks the groups that are due or
whose topics have changed, and drops idle groups.

A session ends only if the client could have renewed it: while the store is down, no group is ticked, and afterwards
every member gets a full session again.
"""

from __future__ import annotations

import logging

from tidelog.coordinator.groups.coordinator_seams import CoordinatorSeams
from tidelog.coordinator.groups.group_step import Moment, Topics
from tidelog.coordinator.groups.group_steps import GroupSteps
from tidelog.coordinator.groups.group_timer import GroupTimer
from tidelog.coordinator.groups.group_writes import GroupWrites
from tidelog.coordinator.groups.leadership_proofs import LeadershipProofs
from tidelog.coordinator.groups.loaded_groups import LoadedGroups
from tidelog.storage.errors import TidelogError

STEPS_AT_ONCE = 100
"""After so many steps the timer lets requests run."""

_log = logging.getLogger(__name__)


class GroupTurns:
    def __init__(
        self,
        seams: CoordinatorSeams,
        groups: LoadedGroups,
        writes: GroupWrites,
        proofs: LeadershipProofs,
        timer: GroupTimer,
        steps: GroupSteps,
    ) -> None:
        self._seams = seams
        self._groups = groups
        self._writes = writes
        self._proofs = proofs
        self._timer = timer
        self._steps = steps
        self._was_away = False
        self._ticked_topics: Topics | None = None

    @property
    def away(self) -> bool:
        """Whether clients may be unable to renew their sessions."""
        return self._writes.failing or self._proofs.failing or not self._seams.reachable()

    async def turn(self, moment: Moment) -> None:
        self._writes.expire()
        self._groups.count_members(moment.monotonic_ms)
        if self._proofs.failing:
            await self._try_to_prove()
        if self.away:
            self._was_away = True
            return
        if self._was_away or self._timer.late(moment):
            self._was_away = False
            self._steps.extend_all(moment)
        self._notice_topics(moment)
        await self._tick_due(moment)
        self._groups.drop_idle(moment.monotonic_ms)

    async def _try_to_prove(self) -> None:
        try:
            await self._proofs.prove()
        except TidelogError as error:
            _log.debug("cannot prove leadership of the shard of these groups yet: %s", error)

    async def _tick_due(self, moment: Moment) -> None:
        for count, name in enumerate(tuple(self._timer.due(moment)), 1):
            if loaded := self._groups.get(name):
                self._steps.tick(loaded)
            if count % STEPS_AT_ONCE == 0:
                await self._seams.runtime.clock.sleep(0)
                self._steps.notice_pause(self._seams.moment())

    def _notice_topics(self, moment: Moment) -> None:
        topics = self._seams.topics()
        if topics is not self._ticked_topics:
            self._ticked_topics = topics
            for loaded in self._groups:
                self._timer.schedule(loaded.name, moment.monotonic_ms)
