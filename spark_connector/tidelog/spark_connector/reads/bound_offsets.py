"""The offsets that a bound stands for now. The broker looks up times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tidelog.spark_connector.options.bounds import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    STRATEGY,
    AtEarliest,
    AtLatest,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    Places,
)
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.storage.errors import Invalid
from tidelog.wire.topic_log import PartitionLogDescription, TopicLogDescription


def offsets_of(bound: Bound, log: TopicLogDescription, connection: BrokerConnection) -> Mapping[int, int]:
    """The offset of `bound` in each partition of `log`. The log is read first: an offset that is looked up by its time
    afterwards can only lie beyond the log's end, and is then cut to it. Raises `Invalid`, `Unavailable`."""
    if isinstance(bound, AtEarliest):
        return {ends.partition: ends.log_start_offset for ends in log.partitions}
    if isinstance(bound, AtLatest):
        return {ends.partition: ends.high_watermark for ends in log.partitions}
    if isinstance(bound, AtOffsets):
        given = _of_topic(bound.places, log.topic)
        return {ends.partition: _named(given[ends.partition], ends) for ends in log.partitions}
    times = _times(bound, log)
    found = _looked_up(times, log.topic, connection)
    return {
        ends.partition: _cut_to_end(bound, log.topic, ends, found[ends.partition])
        if ends.partition in found
        else _named(times[ends.partition], ends)
        for ends in log.partitions
    }


def _of_topic(places: Places, topic: str) -> Mapping[int, int]:
    return {partition: at for name, partition, at in places if name == topic}


def _named(at: int, ends: PartitionLogDescription) -> int:
    return {EARLIEST_OFFSET: ends.log_start_offset, LATEST_OFFSET: ends.high_watermark}.get(at, at)


def _times(bound: AtTimestamp | AtTimestamps, log: TopicLogDescription) -> Mapping[int, int]:
    if isinstance(bound, AtTimestamps):
        return _of_topic(bound.places, log.topic)
    return {ends.partition: bound.timestamp_ms for ends in log.partitions}


def _looked_up(times: Mapping[int, int], topic: str, connection: BrokerConnection) -> Mapping[int, int]:
    """The offsets of the times that are not -1 or -2: one call for all partitions with the same time."""
    sharing: defaultdict[int, list[int]] = defaultdict(list)
    for partition, time_ms in times.items():
        if time_ms >= 0:
            sharing[time_ms].append(partition)
    found: dict[int, int] = {}
    for time_ms, partitions in sharing.items():
        found |= connection.offsets_at(topic, time_ms, partitions)
    return found


def _cut_to_end(bound: AtTimestamp | AtTimestamps, topic: str, ends: PartitionLogDescription, offset: int) -> int:
    """`offset`, which was looked up after `ends` was read, cut to the end."""
    if offset >= ends.high_watermark and bound.must_match:
        time_ms = bound.time_of(topic, ends.partition)
        raise Invalid(
            f"{topic}-{ends.partition} has no record at or after {bound.option} {time_ms}: "
            f"choose an earlier one, or set {STRATEGY}=latest to read nothing of such partitions",
            field=bound.option,
        )
    return min(offset, ends.high_watermark)
