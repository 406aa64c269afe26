"""Visits groups that nobody calls, so that their sessions and offsets end in time.

- When this broker begins to lead a shard, it loads the groups of the shard that have members: their consumers may be
  dead, and nobody else would notice.
- Later it walks slowly over the heads of all groups, and loads those whose offsets are old enough to expire.

A broker whose shards have no groups sends no request but one at the beginning of a leadership.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from tidelog.coordinator.groups.stored import StoredHead, decoded_head
from tidelog.services.broker.groups.local_groups import PAGE_MAX, LocalGroups
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Corrupt, NotLeader, Overloaded, TidelogError
from tidelog.storage.runtime import Runtime

LOOK_S = 1.0
"""How often the loop looks for shards that are newly led; it sends no request."""
WALK_S_MAX = 3_600.0
VISITS_AT_ONCE = 16

_log = logging.getLogger(__name__)


class GroupWalk(BackgroundLoop):
    """`retention_ms`: how long offsets of a group without members are kept."""

    def __init__(self, groups: LocalGroups, runtime: Runtime, retention_ms: int) -> None:
        super().__init__("the walk over groups", runtime)
        self._groups = groups
        self._retention_ms = retention_ms
        self._walk_s = min(WALK_S_MAX, retention_ms / 10_000)
        self._walked: Mapping[int, int] = {}
        self._walked_at_s = float("-inf")
        self._found = False

    async def step(self) -> float:
        led = dict(self._groups.led())
        new = {shard for shard, epoch in led.items() if self._walked.get(shard) != epoch}
        due = self._clock.monotonic() - self._walked_at_s >= self._walk_s
        if new or (due and led and (self._found or self._groups.has_groups)):
            await self._walk(led, new)
            self._walked, self._walked_at_s = led, self._clock.monotonic()
        return LOOK_S

    async def _walk(self, led: Mapping[int, int], new: set[int]) -> None:
        after, more, self._found = "", True, False
        while more:
            page = await self._groups.stores.heads(after, PAGE_MAX)
            visits = [name for name, head in page.heads.items() if self._wants_visit(name, head, led, new)]
            for first in range(0, len(visits), VISITS_AT_ONCE):
                await asyncio.gather(*map(self._visit, visits[first : first + VISITS_AT_ONCE]))
            after, more = max(page.heads, default=after), page.more and bool(page.heads)

    def _wants_visit(self, name: str, value: bytes, led: Mapping[int, int], new: set[int]) -> bool:
        shard = self._groups.shard_of(name)
        if shard not in led:
            return False
        self._found = True
        try:
            head = decoded_head(name, value)
        except Corrupt as error:
            _log.error("the head of group %s cannot be read: %s", name, error)
            return False
        return (shard in new and head.emptied_at_ms == 0) or self._is_old(head)

    def _is_old(self, head: StoredHead) -> bool:
        return 0 < head.emptied_at_ms <= self._clock.now_ms() - self._retention_ms or not head.kind

    async def _visit(self, name: str) -> None:
        try:
            await self._groups.coordinator_of(self._groups.shard_of(name)).visit(name)
        except NotLeader as error:
            _log.debug("group %s is coordinated elsewhere now: %s", name, error)
        except Overloaded as error:
            _log.info("group %s is not visited now, but at the next walk: %s", name, error)
        except TidelogError as error:
            _log.warning("group %s cannot be loaded: %s", name, error)
