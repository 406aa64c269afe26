"""Copies the groups of all shards that this broker leads to the bucket, each shard by its `OffsetCopies`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from tidelog.coordinator.groups.offset_copies import OffsetCopies
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Fenced, TidelogError
from tidelog.storage.in_flight import each_of
from tidelog.storage.runtime import Runtime

LOOK_S = 1.0
"""How often the loop looks for copies that are due."""
SHARDS_AT_ONCE = 8
FLUSH_S = 2.0

_log = logging.getLogger(__name__)


class Leadership(NamedTuple):
    """The `epoch` of a leader of `shard`, while there are `shards` shards."""

    shard: int
    epoch: int
    shards: int


class CopyLoop(BackgroundLoop):
    """`led`: the epochs of the shards that are led now. `shards`: the number of shards now. `new_copies` makes the
    copies of a leadership while there are so many shards."""

    def __init__(
        self,
        led: Callable[[], Mapping[int, int]],
        shards: Callable[[], int],
        new_copies: Callable[[Leadership], OffsetCopies],
        runtime: Runtime,
    ) -> None:
        super().__init__("the copying of committed offsets", runtime)
        self._led = led
        self._shards = shards
        self._new_copies = new_copies
        self._copies: dict[Leadership, OffsetCopies] = {}
        self._failing: set[Leadership] = set()

    def of(self, shard: int, epoch: int) -> OffsetCopies:
        """The copies of this leadership, which get the changes that are stored."""
        leadership = Leadership(shard, epoch, self._shards())
        if leadership not in self._copies:
            self._copies[leadership] = self._new_copies(leadership)
        return self._copies[leadership]

    @property
    def age_s(self) -> float:
        """For how long the oldest change of all shards has not been copied; 0 if all are."""
        return max((copies.age_s for copies in self._copies.values()), default=0.0)

    async def step(self) -> float:
        led = {Leadership(shard, epoch, self._shards()) for shard, epoch in self._led().items()}
        self._copies = {leadership: copies for leadership, copies in self._copies.items() if leadership in led}
        self._failing &= led
        due = [each for each in sorted(led) if self.of(each.shard, each.epoch).due]
        await each_of(due, lambda each: self._copy(each, self._copies[each].step), at_once=SHARDS_AT_ONCE)
        return LOOK_S

    async def flush(self) -> None:
        """Copy at once what was noted, within `FLUSH_S`: this process ends, and etcd may be closed. Raises nothing."""
        noted = [each for each, copies in sorted(self._copies.items()) if copies.noted]
        try:
            async with asyncio.timeout(FLUSH_S):
                await each_of(
                    noted, lambda each: self._copy(each, self._copies[each].copy_noted), at_once=SHARDS_AT_ONCE
                )
        except TimeoutError:
            _log.warning("the bucket did not take the last offsets within %g s; the next leader copies them", FLUSH_S)

    async def _copy(self, leadership: Leadership, copy: Callable[[], Awaitable[None]]) -> None:
        """One shard must not delay the others, so its failure ends here; its step is repeated when it is due again."""
        try:
            await copy()
        except Fenced as error:
            _log.info("the groups of shard %d are copied by another broker now: %s", leadership.shard, error)
        except TidelogError as error:
            if leadership not in self._failing:
                _log.warning("offsets of shard %d cannot be copied to the bucket: %s", leadership.shard, error)
            self._failing.add(leadership)
        else:
            if leadership in self._failing:
                _log.warning("offsets of shard %d are copied to the bucket again", leadership.shard)
            self._failing.discard(leadership)
