"""The groups that a coordinator has in memory, at most `groups_max`, in the order of their last use.

A group is dropped if its machine is idle, no request waits for it, and its changes are stored (`stored`): then the
store has all of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidelog.coordinator.groups.group_step import GroupMachine, Ticket
from tidelog.storage.errors import Overloaded

LOOKS_MAX = 200
"""So many groups are looked at when one must be dropped, or at each turn of the timer."""
RETRY_AFTER_S = 1.0
COUNT_EVERY_MS = 1_000


@dataclass
class LoadedGroup:
    """A group in memory. `tickets`: its requests that the machine has not replied to."""

    name: str
    machine: GroupMachine
    used_ms: int
    tickets: set[Ticket] = field(default_factory=set)


class LoadedGroups:
    def __init__(self, groups_max: int, idle_s: float, stored: Callable[[str], bool]) -> None:
        self._groups_max = groups_max
        self._idle_ms = int(idle_s * 1000)
        self._stored = stored
        self._groups: OrderedDict[str, LoadedGroup] = OrderedDict()
        self.members = 0
        """Of all groups in memory, at the last count."""
        self._counted_at_ms = 0

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[LoadedGroup]:
        return iter(tuple(self._groups.values()))

    def get(self, name: str) -> LoadedGroup | None:
        return self._groups.get(name)

    def add(self, loaded: LoadedGroup) -> None:
        """Raises `Overloaded` if there are too many groups, and none of those used longest ago can be dropped."""
        if len(self._groups) >= self._groups_max and not any(map(self._drop, self._oldest())):
            raise Overloaded(
                f"{self._groups_max} groups of the shard are in use already (group.loaded.max). Retry later; the "
                "request was not applied",
                retry_after_s=RETRY_AFTER_S,
            )
        self._groups[loaded.name] = loaded

    def use(self, loaded: LoadedGroup, now_ms: int) -> None:
        loaded.used_ms = now_ms
        self._groups.move_to_end(loaded.name)

    def remove(self, loaded: LoadedGroup) -> None:
        if self._groups.get(loaded.name) is loaded:
            del self._groups[loaded.name]

    def clear(self) -> None:
        self._groups.clear()

    def count_members(self, now_ms: int) -> None:
        """Count `members`, at most once in `COUNT_EVERY_MS`, because there may be thousands of groups."""
        if now_ms - self._counted_at_ms >= COUNT_EVERY_MS:
            self._counted_at_ms = now_ms
            self.members = sum(loaded.machine.member_count for loaded in self)

    def drop_idle(self, now_ms: int) -> None:
        """Drop groups that were not used for the idle time."""
        for loaded in self._oldest():
            if loaded.used_ms > now_ms - self._idle_ms:
                return
            if not self._drop(loaded):
                self.use(loaded, now_ms)

    def _oldest(self) -> tuple[LoadedGroup, ...]:
        return tuple(loaded for _, loaded in zip(range(LOOKS_MAX), self._groups.values(), strict=False))

    def _drop(self, loaded: LoadedGroup) -> bool:
        if not loaded.machine.idle or loaded.tickets or not self._stored(loaded.name):
            return False
        del self._groups[loaded.name]
        return True
