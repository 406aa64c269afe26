"""What a broker says about the log of one partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.anybody import ANYBODY

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.wire.topic_log import SegmentDescription, SpanDescription, TopicLogRequest


@dataclass(frozen=True)
class PartitionLog:
    """The ends of a partition, its segments by offset, and its span in each of them."""

    partition: int
    log_start_offset: int
    cold_end: int
    high_watermark: int
    manifest_version: int
    segments: Sequence[SegmentDescription]
    spans: Sequence[SpanDescription]


async def partition_log(
    broker: Broker, topic: str, partition: int, *, fresh: bool = True, context: RequestContext = ANYBODY
) -> PartitionLog:
    """The log of one partition, which has fewer segments than fill a page."""
    page = await broker.topic_log(context, topic, TopicLogRequest(partitions=(partition,), fresh=fresh))
    ends, found = page.partition(partition), page.spans().get(partition, ())
    return PartitionLog(
        partition,
        ends.log_start_offset,
        ends.cold_end,
        ends.high_watermark,
        ends.manifest_version,
        [segment for segment, _ in found],
        [span for _, span in found],
    )
