"""Sets the committed offsets of a group without members, with a preview.

`Seeks.seek` looks up the offsets and stores them in one commit. An offset outside the log becomes the nearest end of
it, as in Kafka's tool.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import Anchor, Position
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.consuming.assigned_partitions import Place, grouped, places_of
from tidelog.services.consuming.partition_ends import Ends, look_up, look_up_ends
from tidelog.storage.errors import GroupNotEmpty, Invalid, NotFound
from tidelog.storage.runtime import Clock
from tidelog.wire.groups import CommitOffsets, DescribeGroup, FetchOffsets, PartitionOffset, TopicPartitions
from tidelog.wire.polls import SeekAnswer, Sought

PARTITIONS_MAX = 10_000
"""Partitions of one seek."""
DURATION_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

_DURATION = re.compile(r"-([0-9]{1,12})(ms|s|m|h|d|w)")
_SHIFT = re.compile(r"[+-][0-9]{1,18}")


@dataclass(frozen=True)
class Shift:
    """So many records from the committed offset."""

    records: int


@dataclass(frozen=True)
class Ago:
    """The first record at most so old."""

    duration_ms: int


Target = Position | Shift | Ago


@dataclass(frozen=True)
class SeekOrder:
    """Seek `topics` and `partitions` to `target`; without both, all that the group has committed."""

    target: Target
    topics: Sequence[str] = ()
    partitions: Sequence[TopicPartitions] = ()
    dry_run: bool = False


def relative_target(text: str) -> Shift | Ago | None:
    """The target of ``+N``, ``-N`` (records) or ``-1h`` (a time); None if `text` is none of them.

    >>> relative_target("-2h")
    Ago(duration_ms=7200000)
    """
    if found := _DURATION.fullmatch(text):
        return Ago(int(found[1]) * DURATION_UNITS_MS[found[2]])
    return Shift(int(text)) if _SHIFT.fullmatch(text) else None


class Seeks:
    """The seeks of one broker."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock

    async def seek(self, context: RequestContext, group: str, order: SeekOrder) -> SeekAnswer:
        """Raises `GroupNotEmpty` while the group has members (not if `dry_run`), `NotFound`, `Invalid`, and the errors
        of `Groups` and of `Broker.fetch_parts`. All partitions are moved, or none."""
        if not order.dry_run:
            await self._check_empty(context, group)
        found = await self._broker.groups.call(context, group, FetchOffsets())
        committed = {(each.topic, each.partition): each.offset for each in found.offsets}
        places = await self._places(context, order, committed)
        targets = await self._targets(context, order.target, places, committed)
        moved = [
            Sought(*place, committed.get(place), targets[place])
            for place in sorted(targets)
            if committed.get(place) != targets[place]
        ]
        if moved and not order.dry_run:
            offsets = tuple(PartitionOffset(topic=m.topic, partition=m.partition, offset=m.after) for m in moved)
            await self._broker.groups.call(context, group, CommitOffsets(offsets=offsets))
        return SeekAnswer(tuple(moved), order.dry_run)

    async def _check_empty(self, context: RequestContext, group: str) -> None:
        """The commit checks it again; here it is refused before any offset is looked up."""
        try:
            members = len((await self._broker.groups.call(context, group, DescribeGroup())).members)
        except NotFound:
            return  # the seek makes the group
        if members:
            raise GroupNotEmpty(f"the group {group} has {members} members: stop them before you seek")

    async def _places(self, context: RequestContext, order: SeekOrder, committed: dict[Place, int]) -> list[Place]:
        places = dict.fromkeys(places_of(order.partitions))
        for name in order.topics:
            topic = await self._broker.known_topic(context, name)
            places |= dict.fromkeys((name, number) for number in range(topic.partition_count))
        if not (order.topics or order.partitions):
            places = dict.fromkeys(committed)
        if not places:
            raise Invalid("the group has committed nothing: name the topics to seek", field="topics")
        if len(places) > PARTITIONS_MAX:
            raise Invalid(f"{len(places)} partitions are too many for one seek: name at most {PARTITIONS_MAX}")
        return list(places)

    async def _targets(
        self, context: RequestContext, target: Target, places: Sequence[Place], committed: dict[Place, int]
    ) -> dict[Place, int]:
        if isinstance(target, Ago):
            target = Position(Anchor.TIMESTAMP, max(0, self._clock.now_ms() - target.duration_ms))
        if isinstance(target, Position) and target.anchor in (Anchor.TIMESTAMP, Anchor.FROM_END):
            found = await look_up(self._broker, context, [(place, target) for place in places])
            return {place: answer.part.begin for place, answer in found.items()}
        if isinstance(target, Shift):
            _check_committed(places, committed)
        ends = await look_up_ends(self._broker, context, places)
        return {place: _within(ends[place], _wanted(target, ends[place], committed.get(place, 0))) for place in places}


def _check_committed(places: Sequence[Place], committed: dict[Place, int]) -> None:
    missing = [place for place in places if place not in committed]
    if missing:
        first = grouped(missing)[0]
        raise Invalid(
            f"the group has no committed offset for partition {first.partitions[0]} of {first.topic}: seek it to "
            "earliest, latest, a time or an offset",
            field="to",
        )


def _wanted(target: Position | Shift, ends: Ends, committed: int) -> int:
    if isinstance(target, Shift):
        return committed + target.records
    if target.anchor is Anchor.EARLIEST:
        return ends.log_start_offset
    return ends.high_watermark if target.anchor is Anchor.LATEST else target.value


def _within(ends: Ends, offset: int) -> int:
    return min(max(offset, ends.log_start_offset), ends.high_watermark)
