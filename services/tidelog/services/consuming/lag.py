"""How far a group is behind: in records, and in time.

The cost, besides two calls to the group's coordinator: one call per leader and 1,000 partitions for the ends, without
a request to the store. With times, one more such call for the next record of each partition that lags. Such a record
costs a read of the store if its segment is not in memory. So times are looked up for at most `TIMES_MAX` partitions and
within `TIME_BYTES_MAX` of records; the partitions that lag most come first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits, FetchPart
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.shard.record_columns import timestamps_ms
from tidelog.services.consuming.assigned_partitions import Place, places_of
from tidelog.services.consuming.partition_ends import PARTS_AT_ONCE, Ends, look_up_ends
from tidelog.storage.errors import NotFound
from tidelog.storage.runtime import Clock
from tidelog.wire.groups import DescribeGroup, FetchOffsets
from tidelog.wire.polls import LagAnswer, PartitionLag

TIMES_MAX = 1_000
TIME_BYTES_MAX = 16 << 20


class Lags:
    """The lags of groups, as one broker looks them up."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock

    async def lag(self, context: RequestContext, group: str, *, times: bool) -> LagAnswer:
        """Every partition that the group has committed or that is assigned. `times`: with `lag_ms`. Raises `NotFound`,
        and the errors of `Groups` and of `Broker.fetch_parts`."""
        described = await self._broker.groups.call(context, group, DescribeGroup())
        found = await self._broker.groups.call(context, group, FetchOffsets())
        committed = {(each.topic, each.partition): each.offset for each in found.offsets}
        owners = {place: each.member_id for each in described.members for place in places_of(each.assignment)}
        places = await self._existing(context, sorted({*committed, *owners}))
        ends = await look_up_ends(self._broker, context, places)
        begins = {place: _begin(ends[place], committed.get(place)) for place in places}
        lags = {place: ends[place].high_watermark - begin for place, begin in begins.items()}
        ages = await self._ages(context, begins, lags) if times else {}
        partitions = tuple(
            PartitionLag(
                *place,
                committed.get(place),
                ends[place].log_start_offset,
                ends[place].high_watermark,
                lags[place],
                ages.get(place) if lags[place] else 0,
                owners.get(place, ""),
            )
            for place in places
        )
        nothing = None if any(lags.values()) else 0
        return LagAnswer(group, partitions, sum(lags.values()), max(ages.values(), default=nothing))

    async def _existing(self, context: RequestContext, places: Sequence[Place]) -> list[Place]:
        """Without the partitions of topics that were deleted."""
        counts: dict[str, int] = {}
        for topic in dict.fromkeys(topic for topic, _ in places):
            try:
                counts[topic] = (await self._broker.known_topic(context, topic)).partition_count
            except NotFound:
                continue
        return [(topic, number) for topic, number in places if number < counts.get(topic, 0)]

    async def _ages(
        self, context: RequestContext, begins: dict[Place, int], lags: dict[Place, int]
    ) -> dict[Place, int]:
        """How old the next record of each partition is, in ms; not of all if there are too many."""
        lagging = sorted((place for place, lag in lags.items() if lag), key=lambda place: -lags[place])[:TIMES_MAX]
        ages: dict[Place, int] = {}
        for first in range(0, len(lagging), PARTS_AT_ONCE):
            asked = [FetchPart(*place, begins[place], 1) for place in lagging[first : first + PARTS_AT_ONCE]]
            answers = await self._broker.fetch_parts(context, asked, FetchLimits(len(asked), TIME_BYTES_MAX))
            now_ms = self._clock.now_ms()
            ages |= {
                (each.part.topic, each.part.partition): max(0, now_ms - timestamp_ms)
                for each in answers
                if (timestamp_ms := _first_timestamp_ms(each)) is not None
            }
        return ages


def _begin(ends: Ends, committed: int | None) -> int:
    """The offset of the next record to read."""
    begin = ends.log_start_offset if committed is None else committed
    return min(max(begin, ends.log_start_offset), ends.high_watermark)


def _first_timestamp_ms(answer: FetchedPart) -> int | None:
    if answer.fetched is None or not answer.fetched.batches:
        return None
    return int(timestamps_ms(answer.fetched.batches[0].slice(0, 1))[0])
