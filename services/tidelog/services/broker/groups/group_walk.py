"""Visits groups without calls, so that their sessions and offsets expire in time.

The walk reads the heads of all groups and loads those of the shards led here that have members, whose consumers may be
dead, and those whose offsets are old enough to expire. A broker that has had no call on a group does not walk, and
so sends no request.
"""

from __future__ import annotations

import logging

from tidelog.coordinator.groups.stored import StoredHead, decoded_head
from tidelog.services.broker.groups.local_groups import PAGE_MAX, LocalGroups
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import LeaderUnknown, NotLeader, TidelogError
from tidelog.storage.runtime import Runtime

LOOK_S = 10.0
"""How often the loop looks whether a walk is due; it sends no request."""
WALK_S_MAX = 3_600.0

_log = logging.getLogger(__name__)


class GroupWalk(BackgroundLoop):
    """`retention_ms`: how long offsets of a group without members are kept."""

    def __init__(self, groups: LocalGroups, runtime: Runtime, retention_ms: int) -> None:
        super().__init__("the walk over groups", runtime)
        self._groups = groups
        self._retention_ms = retention_ms
        self._walk_s = min(WALK_S_MAX, retention_ms / 10_000)
        self._next_at_s: float | None = None

    async def step(self) -> float:
        now_s = self._clock.monotonic()
        if self._next_at_s is None and self._groups.used:
            self._next_at_s = now_s + self._walk_s
        if self._next_at_s is not None and now_s >= self._next_at_s:
            await self.walk()
            self._next_at_s = self._clock.monotonic() + self._walk_s
        return min(LOOK_S, self._walk_s)

    async def walk(self) -> None:
        """Visit all groups that may need it, one after the other. Raises `Unavailable`."""
        after, more = "", True
        while more:
            page = await self._groups.stores.heads(after, PAGE_MAX)
            for name, head in page.heads.items():
                await self._visit(name, head)
                after = name
            more = page.more and bool(page.heads)

    async def _visit(self, name: str, value: bytes) -> None:
        shard = self._groups.shard_of(name)
        if shard not in self._groups.led():
            return
        try:
            if self._may_be_due(decoded_head(name, value)):
                await self._groups.coordinator_of(shard).visit(name)
        except (NotLeader, LeaderUnknown) as error:
            _log.debug("group %s is coordinated elsewhere now: %s", name, error)
        except TidelogError as error:
            _log.warning("group %s cannot be visited now, but at the next walk: %s", name, error)

    def _may_be_due(self, head: StoredHead) -> bool:
        return not head.kind or head.emptied_at_ms <= self._clock.now_ms() - self._retention_ms
