"""One snapshot of the log for one read: the offsets of each partition, decided once, from one answer per topic.

Records that are produced or archived after the snapshot do not change the result of the read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.spark_connector.broker_connection import BrokerConnection
from tidelog.spark_connector.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assignment,
    AtEarliest,
    AtOffsets,
    AtTimestamp,
    Bound,
    ReadOptions,
    TopicNames,
)
from tidelog.spark_connector.pruning import OFFSET_MAX, Pruning
from tidelog.spark_connector.slices import (
    PartitionRange,
    Slice,
    TopicRef,
    bounded_range,
    slices_of,
    through_broker,
)
from tidelog.storage.errors import Invalid, NotFound
from tidelog.wire.topic_log import PartitionLogDescription, TopicLogDescription, TopicLogRequest
from tidelog.wire.topics import ListedTopic, TopicDescription

THROUGH_BROKER = "broker"
EVERYTHING = Pruning()


@dataclass(frozen=True)
class TopicSnapshot:
    """The ranges of a topic that a read takes, in the order of partitions, and the log that holds them."""

    topic: TopicRef
    log: TopicLogDescription
    ranges: tuple[PartitionRange, ...]


def take_snapshot(options: ReadOptions, pruning: Pruning = EVERYTHING) -> list[TopicSnapshot]:
    """Ask the broker for the present state of the log, as far as `pruning` needs it. Raises `NotFound`, `Invalid`,
    `DataLoss`, `Unavailable`."""
    with BrokerConnection(options.broker) as connection:
        chosen = _chosen_topics(options, connection)
        wanted = [(topic.name, partition) for topic, partitions in chosen for partition in partitions]
        for bound in (options.start, options.end):
            check_covers(bound, wanted)
        return [
            _snapshot(options, connection, topic, taken, pruning)
            for topic, partitions in chosen
            if pruning.takes_topic(topic.name)
            and (taken := tuple(number for number in partitions if pruning.takes_partition(number)))
        ]


def slices_to_read(options: ReadOptions, topic: TopicSnapshot) -> list[Slice]:
    """The topic's slices. All of them are hot if only the broker can reach the bucket."""
    if store_of(options, topic.log) is None:
        return through_broker(topic.ranges)
    return slices_of(topic.log, topic.ranges)


def store_of(options: ReadOptions, log: TopicLogDescription) -> str | None:
    """The URL under which readers find the bucket; None if only the broker reaches it (``memory:``, or the option
    ``store=broker``)."""
    url = options.store or log.store
    return None if url == THROUGH_BROKER or url.startswith("memory:") else url


def check_covers(bound: Bound, wanted: Sequence[tuple[str, int]]) -> None:
    """Check Kafka's rule: offsets given by partition must name exactly the partitions read. Raises `Invalid`."""
    if not isinstance(bound, AtOffsets):
        return
    named = {(topic, partition) for topic, partition, _ in bound.offsets}
    for difference, verb in ((set(wanted) - named, "lacks"), (named - set(wanted), "names, though it is not read,")):
        if difference:
            some = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(difference)[:10])
            raise Invalid(
                f"{bound.option} {verb} {some}: name exactly the partitions that are read; "
                f"{EARLIEST_OFFSET} is earliest, {LATEST_OFFSET} latest",
                field=bound.option,
            )


def _chosen_topics(options: ReadOptions, connection: BrokerConnection) -> list[tuple[TopicRef, Sequence[int]]]:
    subscription = options.subscription
    if isinstance(subscription, Assignment):
        return _assigned(subscription, connection)
    topics: Iterable[TopicDescription | ListedTopic]
    if isinstance(subscription, TopicNames):
        topics = [connection.topic(name) for name in subscription.names]
    else:
        topics = [topic for topic in connection.topics() if subscription.pattern.fullmatch(topic.name)]
    return [(TopicRef.of(topic), range(len(topic.partitions))) for topic in topics]


def _assigned(assignment: Assignment, connection: BrokerConnection) -> list[tuple[TopicRef, Sequence[int]]]:
    chosen: list[tuple[TopicRef, Sequence[int]]] = []
    for name in dict.fromkeys(topic for topic, _ in assignment.partitions):
        topic = connection.topic(name)
        numbers = tuple(partition for of, partition in assignment.partitions if of == name)
        if (largest := max(numbers)) >= len(topic.partitions):
            raise NotFound(f"topic {name} has no partition {largest}: it has {len(topic.partitions)}, from 0")
        chosen.append((TopicRef.of(topic), numbers))
    return chosen


def _snapshot(
    options: ReadOptions,
    connection: BrokerConnection,
    topic: TopicRef,
    partitions: tuple[int, ...],
    pruning: Pruning,
) -> TopicSnapshot:
    # The log is read first: an offset that is resolved from a time afterwards can only lie beyond the log's end, and
    # is then cut to it.
    log = connection.topic_log(topic.name, _request(partitions, pruning))
    starts, ends = (_offsets(options, bound, log) for bound in (options.start, options.end))
    by_time = isinstance(options.start, AtTimestamp) or isinstance(options.end, AtTimestamp)
    ranges = tuple(
        bounded_range(
            topic.name,
            found,
            starts[found.partition],
            ends[found.partition],
            fail_on_data_loss=options.fail_on_data_loss,
            ends_may_cross=by_time,
        )
        for found in log.partitions
    )
    return TopicSnapshot(topic, log, ranges)


def _request(partitions: tuple[int, ...], pruning: Pruning) -> TopicLogRequest:
    """What has to be known of the log. Bounds beyond the largest offset or below the first one are left out."""
    offsets, times = pruning.offsets, pruning.timestamps_ms
    return TopicLogRequest(
        partitions=partitions,
        min_offset=_natural(offsets.low),
        max_offset=_natural(offsets.high),
        min_timestamp=_natural(times.low),
        max_timestamp=_natural(times.high),
    )


def _natural(bound: int | None) -> int | None:
    return bound if bound is not None and 0 <= bound <= OFFSET_MAX else None


def _offsets(options: ReadOptions, bound: Bound, log: TopicLogDescription) -> Mapping[int, int]:
    """The offset of `bound` in each partition."""
    if isinstance(bound, AtTimestamp):
        return _offsets_at_time(options, bound, log)
    if isinstance(bound, AtOffsets):
        given = {partition: offset for topic, partition, offset in bound.offsets if topic == log.topic}
        return {ends.partition: _given(given[ends.partition], ends) for ends in log.partitions}
    earliest = isinstance(bound, AtEarliest)
    return {ends.partition: ends.log_start_offset if earliest else ends.high_watermark for ends in log.partitions}


def _given(offset: int, ends: PartitionLogDescription) -> int:
    return {EARLIEST_OFFSET: ends.log_start_offset, LATEST_OFFSET: ends.high_watermark}.get(offset, offset)


def _offsets_at_time(options: ReadOptions, bound: AtTimestamp, log: TopicLogDescription) -> Mapping[int, int]:
    if not log.partitions:
        return {}
    with BrokerConnection(options.broker) as connection:
        found = connection.offsets_at(log.topic, bound.timestamp_ms, [ends.partition for ends in log.partitions])
    return {ends.partition: _cut_to_end(bound, log.topic, ends, found[ends.partition]) for ends in log.partitions}


def _cut_to_end(bound: AtTimestamp, topic: str, ends: PartitionLogDescription, offset: int) -> int:
    """`offset`, which was looked up after `ends` was read, cut to the end."""
    if offset >= ends.high_watermark and bound.must_match:
        raise Invalid(
            f"{topic}-{ends.partition} has no record at or after startingTimestamp {bound.timestamp_ms}: choose an "
            "earlier one, or set startingOffsetsByTimestampStrategy=latest to read nothing of such partitions",
            field="startingTimestamp",
        )
    return min(offset, ends.high_watermark)
