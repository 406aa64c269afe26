"""Carries out the polls of groups' members.

    commit ─▶ heartbeat ─▶ starts ─▶ one fetch of all partitions ─▶ answer
                                        │ while it waits: heartbeats on the member's behalf

- The heartbeats of a waiting poll end it at once when the member has lost a partition, or is fenced; the records that
  the fetch has read since are dropped. A poll that joins goes on with the partitions that it gets.
- Partitions are read in turn: the positions of an answer begin with those that had no records, and the next poll reads
  in the order of its positions. So nothing has to be remembered between two polls.
- An offset that is out of range begins anew at `from_position`.
- A poll keeps no state between calls. Any broker takes the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import Anchor, FetchedPart, FetchPart, Position
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.read.shared_limits import within
from tidelog.services.consuming.assigned_partitions import Place, grouped
from tidelog.services.consuming.member_poll import EARLIEST, LATEST, NONE, MemberPoll, PolledRecords
from tidelog.services.consuming.membership import Membership
from tidelog.storage.errors import Invalid, NotFound, OutOfRange, Unavailable
from tidelog.storage.runtime import Clock
from tidelog.wire.groups import PartitionOffset

JOIN_LOOK_S = 0.02
"""How soon a member that has joined looks for its assignment; the times between two looks double."""

_STARTS = {EARLIEST: Position(Anchor.EARLIEST), LATEST: Position(Anchor.LATEST), NONE: None}


class MemberPolls:
    """The polls of one broker."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock

    async def poll(self, context: RequestContext, group: str, asked: MemberPoll) -> PolledRecords:
        """Raises `Invalid`, and the errors of `Groups` and of `Broker.fetch_parts`. After `UnknownMember` or
        `MemberFenced` the member has to drop its partitions and join again. Any other failed poll may be repeated."""
        return await _Poll(self, context, group, asked).run()

    async def leave(self, context: RequestContext, group: str, asked: MemberPoll) -> PolledRecords:
        """Commit if `asked` does, and leave the group. Raises like `poll`."""
        membership = Membership(self.broker.groups, context, group, asked.heartbeat)
        await membership.leave(asked.positions, commit=asked.commit)
        return PolledRecords(
            membership.answer, (), revoked=grouped((each.topic, each.partition) for each in asked.positions)
        )


class _Poll:
    def __init__(self, polls: MemberPolls, context: RequestContext, group: str, asked: MemberPoll) -> None:
        if asked.from_position not in _STARTS:
            raise Invalid(f"from_position must be one of {', '.join(_STARTS)}", field="from_position")
        self._polls = polls
        self._context = context
        self._asked = asked
        self._start = _STARTS[asked.from_position]
        self._membership = Membership(polls.broker.groups, context, group, asked.heartbeat)
        self._positions: dict[Place, PartitionOffset] = {(each.topic, each.partition): each for each in asked.positions}
        self._had = frozenset(self._positions)
        now_s = polls.clock.monotonic()
        self._end_s = now_s + context.bounded_s(asked.limits.wait_ms / 1000, now_s)
        self._look_s = JOIN_LOOK_S

    async def run(self) -> PolledRecords:
        await self._membership.begin(self._asked.positions, commit=self._asked.commit)
        if not self._membership.joins and self._membership.answer.member_epoch != self._asked.heartbeat.member_epoch:
            self._end_s = 0.0  # the client learns of its new assignment at once
        while True:
            parts = await self._fetch(await self._wanted())
            if parts is not None:
                return self._answer(await self._reset(parts))
            if not self._membership.joins:
                return self._answer(())

    async def _wanted(self) -> Sequence[FetchPart]:
        """The partitions to read: first those that were not read in the last poll, then in the order of the
        positions."""
        assigned = self._membership.assigned
        places = [place for place in assigned if place not in self._asked.paused]
        unknown = [place for place in places if place not in self._positions]
        committed = await self._membership.committed(unknown) if unknown else {}
        known = set(places)
        wanted = [self._part(place, committed.get(place, self._start)) for place in unknown]
        wanted += [self._part(place, at.offset) for place, at in self._positions.items() if place in known]
        return wanted

    def _part(self, place: Place, start: int | Position | None) -> FetchPart:
        if start is None:
            raise NotFound(
                f"the group has no committed offset for partition {place[1]} of {place[0]}: commit or seek one, or "
                "poll with another from_position"
            )
        return FetchPart(*place, start, self._asked.limits.max_bytes)

    async def _fetch(self, wanted: Sequence[FetchPart]) -> Sequence[FetchedPart] | None:
        """The records of `wanted`; None if the assignment changed while they were waited for."""
        broker, limits = self._polls.broker, self._asked.limits
        left_s = self._left_s()
        if not wanted:
            return await self._await_assignment()
        fetch = broker.fetch_parts(self._context, wanted, replace(limits, wait_ms=round(left_s * 1000)))
        if not left_s:
            return await fetch
        fetching = asyncio.ensure_future(fetch)
        changing = asyncio.ensure_future(self._changed())
        try:
            await asyncio.wait((fetching, changing), return_when=asyncio.FIRST_COMPLETED)
            if changing.done():
                changing.result()
                return None
            return fetching.result()
        finally:
            for task in (fetching, changing):
                task.cancel()
            await asyncio.gather(fetching, changing, return_exceptions=True)

    async def _changed(self) -> None:
        """Send heartbeats until the member has another assignment. Raises if it is no member any more. A heartbeat that
        has no answer yet does not hold up records: nothing has shown that the member has lost them."""
        while True:
            await self._polls.clock.sleep(self._keep_s)
            if await self._has_changed():
                return

    async def _await_assignment(self) -> Sequence[FetchedPart] | None:
        """Wait while the member has nothing to read; None if it has got another assignment."""
        while (left_s := self._left_s()) > 0:
            keep_s = self._keep_s
            if self._membership.joins:
                keep_s, self._look_s = min(keep_s, self._look_s), 2 * self._look_s
            await self._polls.clock.sleep(min(left_s, keep_s))
            if await self._has_changed():
                return None
        return ()

    async def _has_changed(self) -> bool:
        """Send a heartbeat; whether the member has another assignment. A coordinator that moves, or that waits for its
        store, does not end the poll."""
        try:
            return await self._membership.keep()
        except Unavailable:
            return False

    async def _reset(self, parts: Sequence[FetchedPart]) -> Sequence[FetchedPart]:
        """`parts`, in which those whose offset was out of range begin at `from_position`."""
        start, limits = self._start, replace(self._asked.limits, wait_ms=0)
        lost = [each.part for each in parts if isinstance(each.error, OutOfRange)]
        if start is None or not lost:
            return parts
        anew = await self._polls.broker.fetch_parts(
            self._context, [replace(part, offset=start) for part in lost], limits
        )
        by_place = {(each.part.topic, each.part.partition): each for each in anew}
        return within([by_place.get((each.part.topic, each.part.partition), each) for each in parts], limits)

    def _answer(self, parts: Sequence[FetchedPart]) -> PolledRecords:
        for each in parts:
            if each.next_offset is not None:
                topic, partition = each.part.topic, each.part.partition
                self._positions[topic, partition] = PartitionOffset(
                    topic=topic, partition=partition, offset=each.next_offset
                )
        assigned = frozenset(self._membership.assigned)
        advanced = {(each.part.topic, each.part.partition) for each in parts if each.advanced}
        positions = [(place, at) for place, at in self._positions.items() if place in assigned]
        positions.sort(key=lambda item: item[0] in advanced)
        return PolledRecords(
            self._membership.answer,
            [at for _, at in positions],
            [each for each in parts if (each.part.topic, each.part.partition) in assigned],
            grouped(self._had - assigned),
        )

    @property
    def _keep_s(self) -> float:
        """When the next heartbeat is due. The coordinator asks for them as often as it can afford."""
        return self._membership.answer.heartbeat_interval_ms / 1000

    def _left_s(self) -> float:
        return max(0.0, self._end_s - self._polls.clock.monotonic())
