"""The shards that this broker leads. They change while it runs.

- Alone, the broker leads every shard. A shard that was fenced stays down and reports why. A shard that stopped for
  another cause is claimed again, with a new epoch, until that works.
- In a cluster (`join_cluster`), leadership decides (`ShardHost`). A request for a shard that is led elsewhere is
  refused with `NotLeader` or `LeaderUnknown`; nothing was applied. A shard that is down is removed, so that this broker
  or another one can lead it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.shard.debt_brake import HeldLog
from tidelog.services.broker.shard.hot_tail import HotTail
from tidelog.services.broker.shard.leadership_proof import READERS_TRUST_S
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Fenced, LeaderUnknown, NotLeader
from tidelog.storage.runtime import Runtime

RETRY_AFTER_S = 0.1
CLAIM_TIMEOUT_S = 10.0
"""In a cluster a claim fails after this time, so that another broker can try."""

LEAD_AGAIN = Backoff(first_s=0.5, max_s=15.0)
"""The wait before a broker alone claims a stopped shard again."""

PROVEN_ALONE_S = 5.0
"""A broker without etcd uses a proof of leadership this long. If another broker takes its bucket, it may answer with an
outdated end for that time. A shorter time costs more requests while consumers wait at the end of a log."""

_log = logging.getLogger(__name__)

LeaderLookup = Callable[[int], Leader | None]
"""The other broker that leads a shard, if one is known."""
LeadsSurely = Callable[[int, int], bool]
"""Whether a lease proves that this broker leads a shard in an epoch now (`ClusterView.surely_leads`)."""


class ShardBuilder(Protocol):
    """Builds a `LedShard` that is not open yet."""

    def build(self, shard: int) -> LedShard: ...


class ShardTenant(Protocol):
    """Other state that this broker keeps only while it leads a shard (the coordinators of groups)."""

    async def leave(self, shard: int, drain_s: float) -> None:
        """`shard` is being released, and takes no requests any more: store and answer what was accepted, within
        `drain_s`."""
        ...

    def drop(self, shard: int) -> None:
        """`shard` is not led here any more: stop at once."""
        ...


class ShardSet:
    """A `ShardHost`. `drain_s`: how long a release may wait for the commit of accepted records. `on_change` is called
    whenever a shard is led or released."""

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
        self.on_change: Callable[[], None] = _ignore
        self.tenant: ShardTenant | None = None
        self.handovers = 0
        self.fencings = 0

    def join_cluster(self, lookup: LeaderLookup, surely_leads: LeadsSurely) -> None:
        """From now on other brokers may lead shards; `lookup` finds them."""
        self._lookup = lookup
        self._surely_leads = surely_leads

    @property
    def alone(self) -> bool:
        """Whether this broker leads every shard of its bucket, without a cluster."""
        return self._lookup is None

    def led_shards(self) -> Sequence[LedShard]:
        """By shard. Alone, shards that were fenced or failed are included."""
        return tuple(self._led[shard] for shard in sorted(self._led))

    def debt_bytes(self) -> int:
        """Stored bytes of the WAL entries that are not archived, of led shards that no damage holds."""
        return sum(led.leader.extent.bytes for led in self._led.values() if led.serving and not led.fault)

    def held_logs(self) -> Mapping[int, HeldLog]:
        """The logs of led shards that damage holds, by shard."""
        return {shard: held for shard, led in self._led.items() if led.serving and (held := led.held_log)}

    @property
    def producers_wait(self) -> bool:
        """Whether records wait for their commit."""
        return any(led.leader.buffered_bytes > 0 for led in self._led.values())

    def leads(self, shard: int) -> bool:
        """Whether this broker accepts requests for `shard`."""
        return shard in self._led and self._led[shard].serving

    def epoch(self, shard: int) -> int:
        """The epoch in which this broker leads `shard`; -1 if it does not."""
        return self._led[shard].leader.epoch if self.leads(shard) else -1

    def leading(self, shard: int) -> ShardLeader:
        """The leader of `shard`. Raises `NotLeader`, `LeaderUnknown`; alone, the reason why it stepped down."""
        return self.led_shard(shard).leader

    def led_shard(self, shard: int) -> LedShard:
        """Raises like `leading`."""
        led = self._led.get(shard)
        if led and led.serving:
            return led
        if led and self._lookup is None:
            led.leader.check_leading()
        raise self._elsewhere(shard)

    def check_leading(self, leader: ShardLeader) -> None:
        """Raises like `leading`, unless `leader` still leads its shard."""
        if self.leading(leader.shard) is not leader:
            raise self._elsewhere(leader.shard)

    @contextmanager
    def reading(self, leader: ShardLeader) -> Iterator[None]:
        """A block that reads from the bucket. If the read shows that `leader` was replaced, it raises like
        `leading`."""
        try:
            yield
        except Fenced:
            self.check_leading(leader)
            raise

    async def prove_leading(self, leader: ShardLeader) -> None:
        """Return once it is proved that `leader` led its shard at a moment after this call began. Then the end of the
        log that it knows is correct. Costs no request while the lease is certain; otherwise the log is read. A broker
        alone has no lease and uses a proof for `PROVEN_ALONE_S`.

        If another broker leads, steps down and raises like `leading`. Raises `Unavailable` if neither etcd nor the log
        answers."""
        await self._prove(leader, PROVEN_ALONE_S if self.alone else 0.0)

    async def prove_led_lately(self, leader: ShardLeader) -> None:
        """Like `prove_leading`, for a moment at most `READERS_TRUST_S` ago. A broker alone needs no proof for records
        below the end."""
        if not self.alone:
            await self._prove(leader, READERS_TRUST_S)

    async def _prove(self, leader: ShardLeader, within_s: float) -> None:
        if not self._surely_leads(leader.shard, leader.epoch) and not await leader.proof.led(within_s):
            leader.overtaken("its log contains a later epoch")
        self.check_leading(leader)

    async def changed(self) -> None:
        await self._changed.wait()

    def _elsewhere(self, shard: int) -> NotLeader | LeaderUnknown:
        leader = self._lookup(shard) if self._lookup else None
        if leader is None:
            return no_leader(shard)
        return NotLeader(
            f"not leader of shard {shard}: {leader.broker_id} at {leader.address} leads it. Retry there; the request "
            "was not applied",
            leader=leader.address,
            retry_after_s=RETRY_AFTER_S,
        )

    async def lead(self, shard: int, epoch: int | None = None) -> None:
        """`epoch` None, for a broker alone: the one after the highest in the log."""
        if before := self._led.get(shard):
            await before.close()
        led = self._builder.build(shard)
        try:
            await led.leader.open(epoch, timeout_s=CLAIM_TIMEOUT_S if self._lookup else None)
        except BaseException:
            await led.close()
            raise
        self._led[shard] = led
        self._watch(self._lead_again(led) if self._lookup is None else self._remove_when_down(led))
        self._notify()

    async def release(self, shard: int) -> None:
        if led := self._led.get(shard):
            self.handovers += 1
            await asyncio.gather(led.release(self._drain_s), self._tenant_leaves(shard))
            self._remove(led)

    async def _tenant_leaves(self, shard: int) -> None:
        if self.tenant:
            await self.tenant.leave(shard, self._drain_s)

    def _drop_tenant(self, shard: int) -> None:
        if self.tenant:
            self.tenant.drop(shard)

    async def abandon(self, shard: int) -> None:
        if led := self._led.get(shard):
            self._drop_tenant(shard)
            await led.close(fenced=True)
            self._remove(led)

    def led(self) -> Mapping[int, int]:
        return {shard: led.leader.epoch for shard, led in self._led.items() if led.serving}

    async def drain(self, timeout_s: float) -> None:
        """Commit and answer the accepted records, within `timeout_s`."""
        drains = [asyncio.create_task(led.leader.drain()) for led in self._led.values()]
        if drains:
            await asyncio.wait(drains, timeout=timeout_s)
        for drain in drains:
            drain.cancel()
        await asyncio.gather(*drains, return_exceptions=True)

    async def close(self) -> None:
        """Stop leading all shards. They stay listed for statuses."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for led in self.led_shards():
            await led.close()

    def _watch(self, end: Coroutine[None, None, None]) -> None:
        watcher = asyncio.create_task(end)
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _remove_when_down(self, led: LedShard) -> None:
        """When `led` steps down, remove it, so that the shard can be led again."""
        await led.leader.ended()
        if self._led.get(led.shard) is led and led.leader.down:
            self.fencings += led.leader.down.fenced
            self._drop_tenant(led.shard)
        await led.close()
        self._remove(led)

    async def _lead_again(self, led: LedShard) -> None:
        """When `led` steps down, claim the shard again until that works, unless another broker has fenced it."""
        await led.leader.ended()
        self._drop_tenant(led.shard)
        failures = 0
        while led.leader.down and not led.leader.down.fenced:
            failures += 1
            await self._runtime.clock.sleep(LEAD_AGAIN.delay_s(failures, self._runtime.entropy))
            try:
                await self.lead(led.shard)
            except Exception as error:
                _log.error("shard %d cannot be led again, the broker retries: %s", led.shard, error)
                led.leader.still_down(error)
            else:
                _log.warning("shard %d is led again", led.shard)
                return

    def _remove(self, led: LedShard) -> None:
        if self._led.get(led.shard) is led:
            del self._led[led.shard]
            self._hot_tail.drop(led.shard)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change()


def _no_lease(_shard: int, _epoch: int) -> bool:
    return False


def _ignore() -> None:
    """Nobody listens."""


def no_leader(shard: int) -> LeaderUnknown:
    text = f"shard {shard} has no leader at the moment. Retry; the request was not applied"
    return LeaderUnknown(text, retry_after_s=RETRY_AFTER_S)
