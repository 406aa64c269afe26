"""The shards that this broker leads now: it comes to lead and lets go of them while it runs.

Alone, the broker leads every shard from its start to its end. A shard that was fenced stays down and says why; one
that stopped for another cause is led again, with a new epoch, as soon as that works. In a cluster (`join_cluster`) it
does as leadership tells it (`ShardHost`): a request for a shard that is not led here is refused with `NotLeader` or
`LeaderUnknown`, nothing taken, and a shard that is down is removed, so that it can be led again, here or elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.read.hot_tail import HotTail
from tidelog.services.broker.read.log_start_trust import READERS_TRUST_S
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Fenced, LeaderUnknown, NotLeader
from tidelog.storage.runtime import Runtime

RETRY_AFTER_S = 0.1
CLAIM_TIMEOUT_S = 10.0
"""How long the store may take to answer a claim in a cluster, where another broker could try."""

LEAD_AGAIN = Backoff(first_s=0.5, max_s=15.0)
"""How long a broker alone waits before it claims a shard that stopped."""

PROVEN_ALONE_S = 5.0
"""How long a broker without etcd rests on a proof that it leads: so long it may give an older end after another
broker has taken its bucket. A shorter time costs more requests of consumers that wait at the end of a log."""

_log = logging.getLogger(__name__)

LeaderLookup = Callable[[int], Leader | None]
"""The leader of a shard as far as is known; None if it is this broker, or nobody."""
LeadsSurely = Callable[[int, int], bool]
"""Whether a lease proves that this broker leads a shard in an epoch now (`ClusterView.surely_leads`)."""


class ShardBuilder(Protocol):
    """Builds what leads a shard, not opened yet."""

    def build(self, shard: int) -> LedShard: ...


class ShardSet:
    """A `ShardHost`. `drain_s`: how long letting go may wait for the commit of what was taken."""

    def __init__(self, builder: ShardBuilder, hot_tail: HotTail, runtime: Runtime, *, drain_s: float) -> None:
        self._builder = builder
        self._runtime = runtime
        self._hot_tail = hot_tail
        self._drain_s = drain_s
        self._led: dict[int, LedShard] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._lookup: LeaderLookup | None = None
        self._surely_leads: LeadsSurely = _no_lease
        self._changed = asyncio.Event()
        self.handovers = 0
        self.fencings = 0

    def join_cluster(self, lookup: LeaderLookup, surely_leads: LeadsSurely) -> None:
        """From now on leaders may be elsewhere, where `lookup` says."""
        self._lookup = lookup
        self._surely_leads = surely_leads

    @property
    def alone(self) -> bool:
        """Whether no other broker is known: this one leads every shard of its bucket."""
        return self._lookup is None

    # ---- who leads

    def led_shards(self) -> Sequence[LedShard]:
        """All that is led, by shard; alone, also what was fenced or failed."""
        return tuple(self._led[shard] for shard in sorted(self._led))

    def leads(self, shard: int) -> bool:
        """Whether requests for `shard` are taken here."""
        return shard in self._led and self._led[shard].serving

    def leading(self, shard: int) -> ShardLeader:
        """The leader of `shard`. Raises `NotLeader`, `LeaderUnknown`; alone, why it is not led any more."""
        return self.led_shard(shard).leader

    def led_shard(self, shard: int) -> LedShard:
        """`shard` as it is led here. Raises as `leading` does."""
        led = self._led.get(shard)
        if led and led.serving:
            return led
        if led and self._lookup is None:
            led.leader.check_leading()
        raise self._elsewhere(shard)

    def check_leading(self, leader: ShardLeader) -> None:
        """Raises as `leading` does, unless `leader` still is the one of its shard."""
        if self.leading(leader.shard) is not leader:
            raise self._elsewhere(leader.shard)

    @contextmanager
    def reading(self, leader: ShardLeader) -> Iterator[None]:
        """A block that reads from the bucket, by which `leader` may learn that it was replaced. It raises as
        `leading` does then."""
        try:
            yield
        except Fenced:
            self.check_leading(leader)
            raise

    async def prove_leading(self, leader: ShardLeader) -> None:
        """Return once it is proved that `leader` led its shard at a moment after this call began, so that what it knows
        of the log's end is right. Free while the lease is certain; else the log is asked. A broker alone has no lease,
        and rests on a proof for `PROVEN_ALONE_S`.

        With proof that another broker leads, steps down and raises as `leading` does. Raises `Unavailable` if neither
        etcd nor the log could say."""
        await self._prove(leader, PROVEN_ALONE_S if self.alone else 0.0)

    async def prove_led_lately(self, leader: ShardLeader) -> None:
        """As `prove_leading`, at a moment at most `READERS_TRUST_S` ago. A broker alone reads what lies below the end
        without a proof."""
        if not self.alone:
            await self._prove(leader, READERS_TRUST_S)

    async def _prove(self, leader: ShardLeader, within_s: float) -> None:
        if not self._surely_leads(leader.shard, leader.epoch) and not await leader.proof.led(within_s):
            leader.overtaken("its log has gone on in a later epoch")
        self.check_leading(leader)

    async def changed(self) -> None:
        """Return when a shard is led or let go."""
        await self._changed.wait()

    def _elsewhere(self, shard: int) -> NotLeader | LeaderUnknown:
        leader = self._lookup(shard) if self._lookup else None
        if leader is None:
            return LeaderUnknown(
                f"shard {shard} has no leader at this moment; nothing was taken, send it again",
                retry_after_s=RETRY_AFTER_S,
            )
        return NotLeader(
            f"shard {shard} is led by {leader.broker_id} at {leader.address}; nothing was taken here",
            leader=leader.address,
            retry_after_s=RETRY_AFTER_S,
        )

    # ---- `ShardHost`

    async def lead(self, shard: int, epoch: int | None = None) -> None:
        """`epoch` None: alone, the one above the highest in the log."""
        if before := self._led.get(shard):
            await before.close()
        led = self._builder.build(shard)
        try:
            await led.leader.open(epoch, timeout_s=CLAIM_TIMEOUT_S if self._lookup else None)
        except BaseException:
            await led.close()
            raise
        self._led[shard] = led
        self._watch(self._lead_again(led) if self._lookup is None else self._clear_away(led))
        self._tell()

    async def release(self, shard: int) -> None:
        if led := self._led.get(shard):
            self.handovers += 1
            await led.release(self._drain_s)
            self._let_go(led)

    async def abandon(self, shard: int) -> None:
        if led := self._led.get(shard):
            await led.close(fenced=True)
            self._let_go(led)

    def led(self) -> Mapping[int, int]:
        return {shard: led.leader.epoch for shard, led in self._led.items() if led.serving}

    # ---- the end

    async def drain(self, timeout_s: float) -> None:
        """Commit and answer what was taken, within `timeout_s`."""
        drains = [asyncio.create_task(led.leader.drain()) for led in self._led.values()]
        if drains:
            await asyncio.wait(drains, timeout=timeout_s)
        for drain in drains:
            drain.cancel()
        await asyncio.gather(*drains, return_exceptions=True)

    async def close(self) -> None:
        """Stop leading whatever is led still; statuses go on telling of it."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for led in self.led_shards():
            await led.close()

    # ---- down

    def _watch(self, end: Coroutine[None, None, None]) -> None:
        watcher = asyncio.create_task(end)
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _clear_away(self, led: LedShard) -> None:
        """Once `led` is led no more, for whatever reason: make room for its next time."""
        await led.leader.ended()
        if self._led.get(led.shard) is led and led.leader.down and led.leader.down.fenced:
            self.fencings += 1
        await led.close()
        self._let_go(led)

    async def _lead_again(self, led: LedShard) -> None:
        """Once `led` is led no more: claim the shard until that works. Not if another broker has fenced it."""
        await led.leader.ended()
        failures = 0
        while led.leader.down and not led.leader.down.fenced:
            failures += 1
            await self._runtime.clock.sleep(LEAD_AGAIN.delay_s(failures, self._runtime.entropy))
            try:
                await self.lead(led.shard)
            except Exception as error:
                _log.error("shard %d cannot be led again, trying on: %s", led.shard, error)
                led.leader.still_down(error)
            else:
                _log.warning("shard %d is led again", led.shard)
                return

    def _let_go(self, led: LedShard) -> None:
        if self._led.get(led.shard) is led:
            del self._led[led.shard]
            self._hot_tail.drop(led.shard)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _no_lease(_shard: int, _epoch: int) -> bool:
    """A broker alone has none."""
    return False
