"""Computes assignments off the event loop, one at a time for each group.

While one is computed, a later task of the same group replaces the one that waits. So a storm of joins leads to few
assignments.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_step import AssignmentTask

_log = logging.getLogger(__name__)

Assigned = Callable[[str, AssignmentTask, Any], None]
"""Takes the group, its task, and the target assignment."""


class AssignmentRuns:
    def __init__(self, assign: Callable[[Any], Awaitable[Any]], assigned: Assigned, counts: GroupCounts) -> None:
        self._assign = assign
        self._assigned = assigned
        self._counts = counts
        self._wanted: dict[str, AssignmentTask] = {}
        self._runs: set[asyncio.Task[None]] = set()

    def want(self, group: str, task: AssignmentTask) -> None:
        running = group in self._wanted
        self._wanted[group] = task
        if not running:
            run = asyncio.create_task(self._run(group))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    async def close(self) -> None:
        self.end()
        await asyncio.gather(*self._runs, return_exceptions=True)

    def end(self) -> None:
        for run in self._runs:
            run.cancel()

    async def _run(self, group: str) -> None:
        """Compute until no later task is wanted."""
        try:
            while True:
                task = self._wanted[group]
                target = await self._assign(task.input)
                self._counts.assignments += 1
                self._assigned(group, task, target)
                if self._wanted[group] is task:
                    return
        except Exception:
            _log.exception("no assignment could be computed for group %s", group)
        finally:
            del self._wanted[group]
