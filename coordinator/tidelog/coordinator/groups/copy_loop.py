"""Copies the groups of all shards that this broker leads to the bucket, each shard by its `OffsetCopies`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tidelog.coordinator.groups.offset_copies import OffsetCopies
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Fenced, TidelogError
from tidelog.storage.in_flight import each_of
from tidelog.storage.runtime import Runtime

LOOK_S = 1.0
"""How often the loop looks for copies that are due."""
SHARDS_AT_ONCE = 8

_log = logging.getLogger(__name__)


class CopyLoop(BackgroundLoop):
    """`led`: the epochs of the shards that are led now. `new_copies` makes the copies of a leadership; it raises
    `LeaderUnknown` if there is none any more."""

    def __init__(
        self, led: Callable[[], Mapping[int, int]], new_copies: Callable[[int, int], OffsetCopies], runtime: Runtime
    ) -> None:
        super().__init__("the copying of committed offsets", runtime)
        self._led = led
        self._new_copies = new_copies
        self._copies: dict[tuple[int, int], OffsetCopies] = {}

    def of(self, shard: int, epoch: int) -> OffsetCopies:
        """The copies of this leadership, which get the changes that are stored."""
        if (shard, epoch) not in self._copies:
            self._copies[shard, epoch] = self._new_copies(shard, epoch)
        return self._copies[shard, epoch]

    async def step(self) -> float:
        led = set(self._led().items())
        self._copies = {leadership: copies for leadership, copies in self._copies.items() if leadership in led}
        await each_of(sorted(led), self._copy, at_once=SHARDS_AT_ONCE)
        return LOOK_S

    async def flush(self) -> None:
        """Copy now what was noted, at the end of this process. Raises nothing."""
        await each_of(sorted(self._copies), self._copy_now, at_once=SHARDS_AT_ONCE)

    async def _copy(self, leadership: tuple[int, int]) -> None:
        try:
            copies = self.of(*leadership)
        except TidelogError as error:  # the shard moves at this moment
            _log.debug("the groups of shard %d are not copied now: %s", leadership[0], error)
            return
        if copies.due:
            await self._copy_now(leadership)

    async def _copy_now(self, leadership: tuple[int, int]) -> None:
        """One shard must not delay the others, so its failure ends here; its step is repeated when it is due again."""
        try:
            await self._copies[leadership].step()
        except Fenced as error:
            _log.info("the groups of shard %d are copied by another broker now: %s", leadership[0], error)
        except TidelogError as error:
            _log.warning("committed offsets of shard %d are not copied now, and later again: %s", leadership[0], error)
