"""Reads many partitions at their leaders, with one call per leader.

    partition                             is read
    led here                              here (`PartFetches`)
    led by a peer                         by one call for all partitions that it leads (`Peers.fetch_parts`)
    cold, as a manifest known here or     here, from the bucket (`ColdReader`)
    the leader says

First every leader is asked without waiting. If no partition has records, the leaders are asked again, to wait. The
first one that has records or an error ends the wait, and the other calls are cancelled: their first answers stand.

A call on a partition whose leader moves is repeated, as long as no other partition has records and `Pauses` allows.
Every failed call may be repeated, because reads change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.fetch import Fetched, FetchedPart, FetchLimits, FetchPart
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.cluster.cold_reader import ColdReader
from tidelog.services.broker.cluster.leader_calls import LeaderCalls
from tidelog.services.broker.cluster.leader_router import LeaderRouter
from tidelog.services.broker.read.shared_limits import SharedLimits, within
from tidelog.services.broker.shard.shard_set import no_leader
from tidelog.services.broker.topics import Topics
from tidelog.storage.errors import LeaderUnknown, NotFound, NotLeader, Overloaded, TidelogError, Unavailable
from tidelog.storage.runtime import Clock

ReadHere: TypeAlias = Callable[[RequestContext, Sequence[FetchPart], FetchLimits], Awaitable[Sequence[FetchedPart]]]
ReadThere: TypeAlias = Callable[
    [RequestContext, Leader, Sequence[FetchPart], FetchLimits], Awaitable[Sequence[FetchedPart]]
]
ReadCold: TypeAlias = Callable[[Topic, int, int, FetchLimits], Awaitable[Fetched | None]]
"""Records of a partition from an offset on; None if it is not cold."""


@dataclass(frozen=True)
class PartSources:
    """Where partitions are read."""

    here: ReadHere
    there: ReadThere
    cold: ReadCold
    manifests: ColdReader


@dataclass(frozen=True)
class _Group:
    """Partitions, by their place in the request, that are read together: here, at `leader`, or from the bucket."""

    places: Sequence[int]
    leader: Leader | None = None
    cold: bool = False
    nowhere: bool = False


class PartCalls:
    """Answers `Broker.fetch_parts` in a cluster."""

    def __init__(
        self, sources: PartSources, topics: Topics, router: LeaderRouter, calls: LeaderCalls, clock: Clock
    ) -> None:
        self.sources = sources
        self.topics = topics
        self.router = router
        self.calls = calls
        self.clock = clock

    async def fetch(
        self, context: RequestContext, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        """See `Broker.fetch_parts`. `limits` are capped."""
        return await _PartsRead(self, context, parts, limits).run() if parts else ()


class _PartsRead:
    """One `fetch_parts`. `_answers` has the newest answer of each partition by its place in the request."""

    def __init__(
        self, shared: PartCalls, context: RequestContext, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> None:
        self._shared = shared
        self._context = context
        self._parts = parts
        self._limits = limits
        self._end_s = shared.clock.monotonic() + limits.wait_ms / 1000
        self._topics: dict[int, Topic] = {}
        self._answers: dict[int, FetchedPart] = {}

    async def run(self) -> Sequence[FetchedPart]:
        await self._find_topics()
        places = list(self._topics)
        groups = self._grouped(places)
        await asyncio.gather(*(self._ask(group, len(groups), 0.0) for group in groups))
        if not self._is_over(range(len(self._parts))):
            self._parts = [self._looked_up(place) for place in range(len(self._parts))]
            await self._follow(places)
        return within([self._answers[place] for place in range(len(self._parts))], self._limits)

    def _looked_up(self, place: int) -> FetchPart:
        """The partition with the offset instead of its position, if a leader has looked it up."""
        part, answer = self._parts[place], self._answers[place]
        return part if answer.error else replace(part, offset=answer.part.offset)

    async def _find_topics(self) -> None:
        found = await self._shared.topics.known_all([(part.topic, part.partition) for part in self._parts])
        for place, topic in enumerate(found):
            if isinstance(topic, TidelogError):
                self._answers[place] = FetchedPart(self._parts[place], None, topic)
            else:
                self._topics[place] = topic

    async def _follow(self, places: Sequence[int]) -> None:
        """Ask until one of `places` has records or an error, or the time is over."""
        pauses = self._shared.calls.pauses(self._context, self._limits.wait_ms / 1000)
        while True:
            groups = self._grouped(places)
            if len(groups) > 1:
                return await self._first_over([(group.places, self._follow(group.places)) for group in groups])
            await self._ask(groups[0], 1, self._left_s())
            if self._is_over(places) or not await pauses.passed():
                return None

    async def _first_over(self, works: Sequence[tuple[Sequence[int], Coroutine[Any, Any, None]]]) -> None:
        """Run `works` until one has found records or an error; cancel the others."""
        tasks = {asyncio.ensure_future(work): places for places, work in works}
        pending = set(tasks)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if any(self._has_news(tasks[task]) for task in done):
                    return
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    def _grouped(self, places: Sequence[int]) -> Sequence[_Group]:
        """`places`, grouped by the broker that reads them now, or by the bucket."""
        by_leader: dict[Leader | None, list[int]] = {}
        here, cold, nowhere = [], [], []
        for place in places:
            route = self._shared.router.route(self._shard(place))
            if route.local:
                here.append(place)
            elif self._knows(place):
                cold.append(place)
            elif route.leader is None:
                nowhere.append(place)
            else:
                by_leader.setdefault(route.leader, []).append(place)
        groups = [_Group(here), _Group(cold, cold=True), _Group(nowhere, nowhere=True)]
        groups += [_Group(led, leader) for leader, led in by_leader.items()]
        return [group for group in groups if group.places]

    async def _ask(self, group: _Group, groups: int, wait_s: float) -> None:
        """Read `group`, which has one part of `groups` of the limits. Errors are those of its partitions."""
        limits = replace(
            self._limits,
            max_records=min(self._limits.max_records, max(1, self._limits.max_records // groups)),
            max_bytes=max(1, self._limits.max_bytes // groups),
            wait_ms=round(wait_s * 1000),
        )
        if group.cold or group.nowhere:
            return await self._read_cold(group.places, limits)
        parts = [self._parts[place] for place in group.places]
        try:
            answers = await self._read(group, parts, limits)
        except TidelogError as error:
            answers = [FetchedPart(part, None, error) for part in parts]
        self._answers.update(zip(group.places, answers, strict=True))
        await self._learn_of_deletions(group.places)
        cold = [place for place in group.places if self._answers[place].cold]
        return await self._read_cold(cold, limits, surely=True)

    async def _learn_of_deletions(self, places: Sequence[int]) -> None:
        """A leader that does not find a topic has read the journal. This broker reads it, too, before it says so: after
        that answer a client may create the topic again, and this broker must not use the deleted one."""
        gone = {self._topics[at].topic_id: at for at in places if isinstance(self._answers[at].error, NotFound)}
        for place in gone.values():
            try:
                await self._shared.topics.check_exists(self._topics[place])
            except NotFound:
                continue
            except TidelogError as error:
                self._answers[place] = replace(self._answers[place], error=error)

    async def _read(self, group: _Group, parts: Sequence[FetchPart], limits: FetchLimits) -> Sequence[FetchedPart]:
        sources, context = self._shared.sources, self._context
        if group.leader is None:
            return await sources.here(context, parts, limits)
        shards = {self._shard(place) for place in group.places}
        return await self._shared.calls.at_leader(
            shards, group.leader, lambda leader: sources.there(context, leader, parts, limits)
        )

    async def _read_cold(self, places: Sequence[int], limits: FetchLimits, *, surely: bool = False) -> None:
        """From the bucket, a few partitions at the same time, until the limits are reached. `surely`: the leader says
        that they are cold."""
        shared = SharedLimits(limits)
        for place in places:
            part = self._looked_up(place) if surely else self._parts[place]
            self._answers[place] = self._unread_cold(place, part)
        waiting = [place for place in places if not self._answers[place].error]
        while waiting and not (shared.reached or shared.lacks_room):
            wave, waiting = waiting[: shared.readers_max], waiting[shared.readers_max :]
            reads = (self._read_one_cold(place, shared, len(wave), surely=surely) for place in wave)
            for place, answer in zip(wave, await asyncio.gather(*reads), strict=True):
                self._answers[place] = shared.take(answer)

    async def _read_one_cold(self, place: int, shared: SharedLimits, readers: int, *, surely: bool) -> FetchedPart:
        part, topic, sources = self._answers[place].part, self._topics[place], self._shared.sources
        try:
            if surely and not sources.manifests.knows(topic, part.partition, part.begin):
                await sources.manifests.newest(topic, part.partition)
            fetched = await sources.cold(topic, part.partition, part.begin, shared.of(part, readers))
        except TidelogError as error:
            return FetchedPart(part, None, error)
        return FetchedPart(part, fetched, None if fetched else no_leader(self._shard(place)))

    def _unread_cold(self, place: int, part: FetchPart) -> FetchedPart:
        """The answer before `part` is read. Only a leader can look up a position."""
        if isinstance(part.offset, int):
            return FetchedPart(part, None, cold=True)
        return FetchedPart(part, None, no_leader(self._shard(place)))

    def _shard(self, place: int) -> int:
        return self._topics[place].shards[self._parts[place].partition]

    def _knows(self, place: int) -> bool:
        """Whether a manifest that is known here holds the first offset."""
        part = self._parts[place]
        if not isinstance(part.offset, int):
            return False
        return self._shared.sources.manifests.knows(self._topics[place], part.partition, part.offset)

    def _left_s(self) -> float:
        return max(0.0, self._end_s - self._shared.clock.monotonic())

    def _is_over(self, places: Sequence[int]) -> bool:
        if self._has_news(places):
            return True
        return self._left_s() <= 0 and not any(self._moves(place) for place in places)

    def _has_news(self, places: Sequence[int]) -> bool:
        """Whether one of `places` has records, or an error that a repeated call would not mend."""
        return any(
            self._answers[place].advanced or (self._answers[place].error is not None and not self._moves(place))
            for place in places
        )

    def _moves(self, place: int) -> bool:
        """Whether `place` was not read because its leader moves, or failed to read it: another one may not."""
        error = self._answers[place].error
        if not isinstance(error, Unavailable):
            return False
        if isinstance(error, NotLeader | LeaderUnknown) or place not in self._topics:
            return place in self._topics
        local = self._shared.router.route(self._shard(place)).local
        return not isinstance(error, Overloaded) and not local
