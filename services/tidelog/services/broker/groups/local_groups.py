"""The groups that this broker coordinates: those of the shards that it leads.

A group belongs to shard ``murmur2(name) mod shards``. For each leadership of a shard there is one `GroupCoordinator`:
it is made at the first call, stores and answers what it has accepted when the shard is released, and is dropped when
the shard is fenced. A call on a group of another shard raises `NotLeader` or `LeaderUnknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidelog.coordinator.groups.coordinator_seams import CoordinatorBounds, CoordinatorSeams, NewMachine
from tidelog.coordinator.groups.group_coordinator import GroupCoordinator
from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.stored import decoded_head
from tidelog.services.broker.api.cluster import Route
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.groups.group_stores import GroupStores
from tidelog.services.broker.groups.group_topics import GroupTopics
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.telemetry.group_figures import GroupFigures
from tidelog.storage.errors import Invalid, Overloaded, Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.wire.groups import GroupPage, GroupRequest, ListedGroup

A = TypeVar("A")

NAME_CHARACTERS_MAX = 249
PAGE_MAX = 1_000
AGAIN_S = 1.0
"""A coordinator that ended although the shard is still led here is replaced after this time."""
ASSIGNING_THREADS = 1
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True)
class GroupParts:
    """`new_machine` makes the state machine of a group; `assign` computes an assignment, in a thread."""

    new_machine: NewMachine
    assign: Callable[[Any], Any]
    bounds: CoordinatorBounds = field(default_factory=CoordinatorBounds)


@dataclass
class _Held:
    led: LedShard
    coordinator: GroupCoordinator
    ended_at_s: float | None = None


class LocalGroups:
    """Implements `api.Groups` for the shards led here, and `ShardTenant`. Takes calls from `open` to `close`.
    `shard_count`: the cluster's number of shards now. `used`: whether there was a call on a group."""

    def __init__(
        self,
        parts: GroupParts,
        shards: ShardSet,
        topics: GroupTopics,
        shard_count: Callable[[], int],
        runtime: Runtime,
    ) -> None:
        self.counts = GroupCounts()
        self.topics = topics
        self._parts = parts
        self._shards = shards
        self._shard_count = shard_count
        self._runtime = runtime
        self._clock = runtime.clock
        self._stores: GroupStores | None = None
        self._held: dict[int, _Held] = {}
        self.used = False
        self._threads = ThreadPoolExecutor(ASSIGNING_THREADS, thread_name_prefix="assign")

    def open(self, stores: GroupStores) -> None:
        """Accept calls on groups that are stored in `stores`."""
        self._stores = stores
        self._shards.tenant = self

    async def call(self, context: RequestContext, /, group: str, request: GroupRequest[A]) -> A:
        coordinator = self.coordinator_of(self.shard_of(group))
        if context.deadline_s is None:
            return await coordinator.call(group, request)
        try:
            async with asyncio.timeout(max(0.0, context.deadline_s - self._clock.monotonic())):
                return await coordinator.call(group, request)
        except TimeoutError:
            raise Unavailable("the request's time is over: the outcome is unknown. Repeat it") from None

    async def groups(self, _context: RequestContext, /, *, after: str = "", limit: int = PAGE_MAX) -> GroupPage:
        if not 1 <= limit <= PAGE_MAX:
            raise Invalid(f"limit must be 1 to {PAGE_MAX}, not {limit}", field="limit")
        page = await self.stores.heads(after, limit)
        listed = tuple(ListedGroup(name, decoded_head(name, head).kind) for name, head in page.heads.items())
        return GroupPage(listed, listed[-1].group if page.more and listed else None)

    def coordinator(self, _context: RequestContext, /, group: str) -> Route:
        shard = self.shard_of(group)
        return Route(shard, local=self._shards.leads(shard))

    def shard_of(self, group: str) -> int:
        """The shard whose leader coordinates `group`. Raises `Invalid` for a name that no group can have."""
        return shard_of_group(checked_name(group), self._shard_count())

    @property
    def store_wait_s(self) -> float:
        """How long a call may wait for the store."""
        return self._parts.bounds.writes.wait_s

    @property
    def stores(self) -> GroupStores:
        if self._stores is None:
            text = "the broker is starting or stopping. Retry; the request was not applied"
            raise Overloaded(text, retry_after_s=_RETRY_AFTER_S)
        return self._stores

    @property
    def coordinators(self) -> Iterable[GroupCoordinator]:
        return tuple(held.coordinator for held in self._held.values())

    def size(self) -> tuple[int, int]:
        """How many groups are in memory, and how many members they had when they were last counted."""
        loaded = [coordinator.loaded for coordinator in self.coordinators]
        return sum(map(len, loaded)), sum(groups.members for groups in loaded)

    def figures(self) -> GroupFigures:
        """For metrics."""
        loaded = [group for coordinator in self.coordinators for group in coordinator.loaded]
        return GroupFigures(
            groups=len(loaded),
            members=sum(group.machine.member_count for group in loaded),
            waiting=sum(coordinator.waiting for coordinator in self.coordinators),
            counts=self.counts,
            copy_age_s=self._stores.copy_age_s() if self._stores else 0.0,
        )

    def led(self) -> Mapping[int, int]:
        """The epochs of the shards that are led here."""
        return self._shards.led()

    def coordinator_of(self, shard: int) -> GroupCoordinator:
        """The coordinator of the groups of `shard`. Raises `NotLeader`, `LeaderUnknown`."""
        stores, led = self.stores, self._shards.led_shard(shard)
        held = self._held.get(shard)
        if held is None or held.led is not led or self._has_ended(held):
            self.drop(shard)
            held = self._held[shard] = _Held(led, self._made(led, stores))
            self.used = True
        return held.coordinator

    async def leave(self, shard: int, drain_s: float) -> None:
        """The shard is being released."""
        if held := self._held.pop(shard, None):
            await held.coordinator.close(drain_s)

    def drop(self, shard: int) -> None:
        """The shard is led elsewhere, or was fenced."""
        if held := self._held.pop(shard, None):
            held.coordinator.end("the shard is not led here any more")

    async def close(self, drain_s: float) -> None:
        """Store and answer what was accepted, within `drain_s`, and stop."""
        stores, self._stores = self._stores, None
        await asyncio.gather(*(self.leave(shard, drain_s) for shard in tuple(self._held)))
        if stores:
            await stores.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _has_ended(self, held: _Held) -> bool:
        """Whether to make another coordinator for the same leadership. Not at once: after it was fenced, leadership
        needs a moment to notice."""
        if held.coordinator.ended is None:
            return False
        held.ended_at_s = held.ended_at_s or self._clock.monotonic()
        return self._clock.monotonic() - held.ended_at_s >= AGAIN_S

    def _made(self, led: LedShard, stores: GroupStores) -> GroupCoordinator:
        async def prove() -> None:
            self._shards.check_leading(led.leader)
            await self._shards.prove_leading(led.leader)

        seams = CoordinatorSeams(
            store=stores.of(led.shard, led.leader.epoch),
            new_machine=self._parts.new_machine,
            assign=self._assigned,
            topics=self.topics.now,
            prove=prove,
            reachable=stores.reachable,
            runtime=self._runtime,
            counts=self.counts,
        )
        return GroupCoordinator(led.shard, seams, self._parts.bounds)

    async def _assigned(self, task: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._parts.assign, task)


def checked_name(group: str) -> str:
    """`group`. Raises `Invalid` unless it has 1 to `NAME_CHARACTERS_MAX` characters."""
    if not 1 <= len(group) <= NAME_CHARACTERS_MAX:
        text = f"the name of a group has 1 to {NAME_CHARACTERS_MAX} characters, not {len(group)}"
        raise Invalid(text, field="group")
    if not group.isprintable():
        raise Invalid(f"the name of a group has printable characters only: {group!r}", field="group")
    return group
