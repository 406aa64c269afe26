"""Looks up offsets of many partitions, with one call per leader and `PARTS_AT_ONCE` partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import LATEST, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.consuming.assigned_partitions import Place
from tidelog.storage.errors import NotFound, Unavailable

PARTS_AT_ONCE = 1_000


@dataclass(frozen=True)
class Ends:
    """The readable offsets of a partition: ``[log_start_offset, high_watermark)``."""

    log_start_offset: int
    high_watermark: int


async def look_up(
    broker: Broker,
    context: RequestContext,
    parts: Sequence[tuple[Place, int | Position]],
    *,
    leave_out_missing: bool = False,
    fresh: bool = True,
) -> dict[Place, FetchedPart]:
    """The answer for each partition, without records: its `part` has the offset of the position. Raises the error of
    the first partition that has one. `leave_out_missing`: a partition that does not exist has no answer."""
    found: dict[Place, FetchedPart] = {}
    limits = FetchLimits(0, 0, fresh=fresh)
    for first in range(0, len(parts), PARTS_AT_ONCE):
        asked = [FetchPart(*place, position, 0) for place, position in parts[first : first + PARTS_AT_ONCE]]
        for answer in await broker.fetch_parts(context, asked, limits):
            if leave_out_missing and isinstance(answer.error, NotFound):
                continue
            if answer.error:
                raise answer.error
            found[answer.part.topic, answer.part.partition] = answer
    return found


async def look_up_ends(broker: Broker, context: RequestContext, places: Sequence[Place]) -> dict[Place, Ends]:
    """The ends of each partition, linearizable. Raises like `look_up`."""
    ends = {}
    for place, answer in (await look_up(broker, context, [(place, LATEST) for place in places])).items():
        if answer.fetched is None:
            raise Unavailable(f"the ends of partition {place[1]} of {place[0]} are not known. Retry")
        ends[place] = Ends(answer.fetched.log_start_offset, answer.fetched.high_watermark)
    return ends
