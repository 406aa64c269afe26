"""Reads many partitions that this broker leads with one request.

    open        the state and first offset of each partition; an unknown partition or a shard led elsewhere is an error
                of that partition
    wait        if all partitions are at their ends: one wait for the next commit of any of them (`LongPolls`)
    prove       one proof of leadership per shard (`local_reads` says when an answer needs which)
    read        in the order of the request, within the limits of all together; cold partitions a few at the same time

An error of one partition is in its answer and ends the wait. Reads of hot partitions take turns on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import Fetched, FetchedPart, FetchLimits, FetchPart
from tidelog.services.broker.read.local_reads import COUNTED_FROM_END, LocalReads
from tidelog.services.broker.read.long_poll import LongPolls
from tidelog.services.broker.read.partition_reader import PartitionReader, PartRead
from tidelog.services.broker.read.shared_limits import SharedLimits
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.topics import Topics
from tidelog.storage.errors import TidelogError
from tidelog.storage.loop_turns import LoopTurns

OPENED_AT_ONCE = 32
"""Partitions whose state or position is looked up at the same time, which may cost requests to the store."""
READS_A_TURN = 32


@dataclass(frozen=True, slots=True)
class _Open:
    """A partition that is led here. `by_end`: its position depends on the end of the log."""

    part: FetchPart
    leader: ShardLeader
    state: PartitionState
    by_end: bool = False

    @property
    def at_end(self) -> bool:
        return self.part.begin == self.state.high_watermark and not self.state.deleted

    def answer(self, read: PartRead) -> FetchedPart:
        ends = (self.state.log_start_offset, self.state.high_watermark, self.state.cold_end)
        return FetchedPart(self.part, Fetched(read.batches, read.next_offset, *ends, read.stored, read.sent))

    def unread(self) -> FetchedPart:
        return self.answer(PartRead((), self.part.begin))

    @property
    def cold(self) -> bool:
        return self.state.log_start_offset <= self.part.begin < self.state.cold_end


class PartFetches:
    """Answers `Broker.fetch_parts` for the shards that are led here."""

    def __init__(
        self, reads: LocalReads, reader: PartitionReader, shards: ShardSet, topics: Topics, polls: LongPolls
    ) -> None:
        self._reads = reads
        self._topics = topics
        self._reader = reader
        self._shards = shards
        self._polls = polls
        self._turns = LoopTurns(READS_A_TURN)

    async def fetch(
        self, parts: Sequence[FetchPart], limits: FetchLimits, *, leave_cold: bool = False
    ) -> Sequence[FetchedPart]:
        """See `Broker.fetch_parts`. `leave_cold`: answer cold partitions with `FetchedPart.cold`. Raises `Overloaded`
        if too many fetches wait."""
        answers: dict[int, FetchedPart] = {}
        opened = await self._opened(parts, answers)
        if limits.wait_ms and not answers and all(each.at_end for each in opened.values()):
            await self._polls.wait([each.state for each in opened.values()], limits.wait_ms / 1000)
        await self._prove(opened, answers, fresh=limits.fresh)
        await self._read_all(opened, answers, limits, leave_cold=leave_cold)
        return [answers[place] for place in range(len(parts))]

    async def _opened(self, parts: Sequence[FetchPart], answers: dict[int, FetchedPart]) -> dict[int, _Open]:
        """The partitions that are led here, by their place in the request; errors go to `answers`."""
        opened: dict[int, _Open] = {}
        slow: list[tuple[int, Topic]] = []
        found = await self._topics.known_all([(part.topic, part.partition) for part in parts])
        for place, topic in enumerate(found):
            try:
                quickly = self._open_quickly(parts[place], topic)
            except TidelogError as error:
                answers[place] = FetchedPart(parts[place], None, error)
                continue
            if quickly:
                opened[place] = quickly
            elif isinstance(topic, Topic):
                slow.append((place, topic))

        async def open_slowly(place: int, topic: Topic) -> None:
            try:
                opened[place] = await self._open(parts[place], topic)
            except TidelogError as error:
                answers[place] = FetchedPart(parts[place], None, error)

        for first in range(0, len(slow), OPENED_AT_ONCE):
            await asyncio.gather(*(open_slowly(*each) for each in slow[first : first + OPENED_AT_ONCE]))
        return {place: opened[place] for place in sorted(opened)}

    def _open_quickly(self, part: FetchPart, topic: Topic | TidelogError) -> _Open | None:
        """The partition, unless something has to be read from the store. Raises its error."""
        if isinstance(topic, TidelogError):
            raise topic
        leader, state = self._reads.loaded(topic, part.partition)
        return _Open(part, leader, state) if state and isinstance(part.offset, int) else None

    async def _open(self, part: FetchPart, topic: Topic) -> _Open:
        leader, state = await self._reads.state_of(topic, part.partition)
        position = part.offset
        if isinstance(position, int):
            return _Open(part, leader, state)
        offset = await self._reads.offset_of(leader, state, position)
        return _Open(replace(part, offset=offset), leader, state, position.anchor in COUNTED_FROM_END)

    async def _prove(self, opened: dict[int, _Open], answers: dict[int, FetchedPart], *, fresh: bool) -> None:
        """One proof for each leader, as far as the partition that needs most of it needs it. The partitions of a leader
        that was replaced go from `opened` to `answers`, with the error."""
        by_end = {each.leader: False for each in opened.values()}
        for each in opened.values():
            begin, end = each.part.begin, each.state.high_watermark
            by_end[each.leader] |= begin > end or (fresh and (begin == end or each.by_end))
        proofs = (self._proof_error(leader, by_end=needed, fresh=fresh) for leader, needed in by_end.items())
        errors = dict(zip(by_end, await asyncio.gather(*proofs), strict=True))
        for place, each in tuple(opened.items()):
            if error := errors[each.leader]:
                answers[place] = FetchedPart(each.part, None, error)
                del opened[place]

    async def _proof_error(self, leader: ShardLeader, *, by_end: bool, fresh: bool) -> TidelogError | None:
        try:
            self._shards.check_leading(leader)
            await self._reads.prove(leader, by_end=by_end, fresh=fresh or by_end)
        except TidelogError as error:
            return error
        return None

    async def _read_all(
        self, opened: dict[int, _Open], answers: dict[int, FetchedPart], limits: FetchLimits, *, leave_cold: bool
    ) -> None:
        shared = SharedLimits(limits)
        parts, first = list(opened.items()), 0
        while first < len(parts):
            wave = _next_wave(parts, first, shared)
            first += len(wave)
            for place, answer in await self._read_wave(wave, shared, leave_cold=leave_cold):
                answers[place] = shared.take(answer)

    async def _read_wave(
        self, wave: Sequence[tuple[int, _Open]], shared: SharedLimits, *, leave_cold: bool
    ) -> Sequence[tuple[int, FetchedPart]]:
        if len(wave) == 1:
            place, only = wave[0]
            return ((place, await self._read(only, shared, 1, leave_cold=leave_cold)),)
        reads = (self._read(each, shared, len(wave), leave_cold=leave_cold) for _, each in wave)
        return [(place, answer) for (place, _), answer in zip(wave, await asyncio.gather(*reads), strict=True)]

    async def _read(self, opened: _Open, shared: SharedLimits, readers: int, *, leave_cold: bool) -> FetchedPart:
        part, state = opened.part, opened.state
        try:
            state.check_readable(part.begin)
            if opened.at_end or shared.reached or (opened.cold and shared.lacks_room):
                return opened.unread()
            if leave_cold and opened.cold:
                return FetchedPart(part, None, cold=True)
            await self._turns.take()
            with self._shards.reading(opened.leader):
                limits = shared.of(part, readers)
                read = await self._reader.fetch(opened.leader.partitions, state, part.begin, limits)
        except TidelogError as error:
            return FetchedPart(part, None, error)
        return opened.answer(read)


def _next_wave(parts: Sequence[tuple[int, _Open]], first: int, shared: SharedLimits) -> Sequence[tuple[int, _Open]]:
    """The partition at `first`; if it is cold, those that follow it as long as they are cold, too."""
    end = first + 1
    if parts[first][1].cold:
        while end < min(len(parts), first + shared.readers_max) and parts[end][1].cold:
            end += 1
    return parts[first:end]
