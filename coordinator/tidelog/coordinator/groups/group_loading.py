"""Reads groups from the store into memory, each once for all its callers, at most `LOADS_AT_ONCE` at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tidelog.coordinator.groups.coordinator_seams import CoordinatorSeams
from tidelog.coordinator.groups.group_steps import GroupSteps
from tidelog.coordinator.groups.group_timer import GroupTimer
from tidelog.coordinator.groups.group_writes import GroupWrites
from tidelog.coordinator.groups.loaded_groups import LoadedGroup, LoadedGroups
from tidelog.storage.errors import Unavailable
from tidelog.storage.single_flight import SingleFlight

LOADS_AT_ONCE = 32


class GroupLoading:
    """`wait_s`: how long a read of the store may take."""

    def __init__(
        self,
        seams: CoordinatorSeams,
        wait_s: float,
        groups: LoadedGroups,
        writes: GroupWrites,
        timer: GroupTimer,
        steps: GroupSteps,
    ) -> None:
        self._seams = seams
        self._wait_s = wait_s
        self._groups = groups
        self._writes = writes
        self._timer = timer
        self._steps = steps
        self._loads: SingleFlight[str, None] = SingleFlight()
        self._at_once = asyncio.Semaphore(LOADS_AT_ONCE)

    async def loaded(self, group: str, check_open: Callable[[], None]) -> LoadedGroup:
        """`group` in memory. `check_open` raises once the coordinator has ended. Raises `Unavailable`, `Overloaded`."""
        while (loaded := self._groups.get(group)) is None:  # it may be dropped again before this call continues
            self._timer.ensure()
            await self._loads.run(group, lambda: self._load(group, check_open))
            check_open()
        self._groups.use(loaded, self._seams.moment().monotonic_ms)
        return loaded

    async def _load(self, group: str, check_open: Callable[[], None]) -> None:
        if self._groups.get(group):
            return
        await self._writes.stored(group)
        found = await self._read(group)
        check_open()
        moment = self._seams.moment()
        loaded = LoadedGroup(group, self._seams.new_machine(group, found, moment), moment.monotonic_ms)
        self._groups.add(loaded)
        self._steps.take(loaded)
        self._timer.ensure()

    async def _read(self, group: str) -> Mapping[str, bytes]:
        """All keys of `group`. Raises `Unavailable` if the store does not answer in time."""
        try:
            async with asyncio.timeout(self._wait_s), self._at_once:
                return await self._seams.store.load(group)
        except TimeoutError:
            raise Unavailable(
                f"the store of groups did not answer in time; group {group!r} is not known. Retry"
            ) from None
