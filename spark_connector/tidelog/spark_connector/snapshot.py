"""One snapshot of the log for one read: the offsets of each partition, decided once, from one answer per partition.

Records that are produced or archived after the snapshot do not change the result of the read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tidelog.spark_connector.broker_connection import BrokerConnection
from tidelog.spark_connector.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assignment,
    AtEarliest,
    AtLatest,
    AtOffsets,
    AtTimestamp,
    Bound,
    ReadOptions,
    TopicNames,
)
from tidelog.spark_connector.slices import (
    PartitionRange,
    Slice,
    TopicRef,
    bounded_range,
    slices_of,
    through_broker,
)
from tidelog.storage.errors import Invalid, NotFound
from tidelog.wire.topics import ListedTopic, PartitionLogDescription, TopicDescription

CONNECTIONS_MAX = 8
PARTITIONS_PER_CONNECTION = 16
THROUGH_BROKER = "broker"


@dataclass(frozen=True)
class TopicSnapshot:
    """The ranges of a topic that a read takes, in the order of partitions."""

    topic: TopicRef
    ranges: tuple[PartitionRange, ...]


def take_snapshot(options: ReadOptions) -> list[TopicSnapshot]:
    """Ask the broker for the present state of the log. Raises `NotFound`, `Invalid`, `DataLoss`, `Unavailable`."""
    with BrokerConnection(options.broker) as connection:
        chosen = _chosen_topics(options, connection)
    wanted = [(topic.name, partition) for topic, partitions in chosen for partition in partitions]
    for bound in (options.start, options.end):
        check_covers(bound, wanted)
    ranges = _ranges(options, wanted)
    return [
        TopicSnapshot(topic, tuple(ranges[topic.name, partition] for partition in partitions))
        for topic, partitions in chosen
    ]


def slices_to_read(options: ReadOptions, topic: TopicSnapshot) -> list[Slice]:
    """The topic's slices. All of them are hot if only the broker can reach the bucket."""
    return [
        piece
        for wanted in topic.ranges
        for piece in (through_broker(wanted) if store_of(options, wanted.log) is None else slices_of(wanted))
    ]


def store_of(options: ReadOptions, log: PartitionLogDescription) -> str | None:
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


def _ranges(options: ReadOptions, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], PartitionRange]:
    """The range of each partition. Several connections share the work if there are many partitions."""
    shares = min(CONNECTIONS_MAX, -(-len(wanted) // PARTITIONS_PER_CONNECTION))
    if shares <= 1:
        return dict(_share_of_ranges(options, wanted))
    with ThreadPoolExecutor(shares) as pool:
        parts = pool.map(lambda share: _share_of_ranges(options, wanted[share::shares]), range(shares))
        return {at: found for part in parts for at, found in part}


def _share_of_ranges(
    options: ReadOptions, wanted: Iterable[tuple[str, int]]
) -> list[tuple[tuple[str, int], PartitionRange]]:
    with BrokerConnection(options.broker) as connection:
        return [(at, _range(options, connection, *at)) for at in wanted]


def _range(options: ReadOptions, connection: BrokerConnection, topic: str, partition: int) -> PartitionRange:
    # The log is read first: an offset that is resolved from a time afterwards can only lie beyond the log's end, and
    # is then cut to it.
    log = connection.partition_log(topic, partition)
    return bounded_range(
        log,
        _offset_of(options.start, log, connection),
        _offset_of(options.end, log, connection),
        fail_on_data_loss=options.fail_on_data_loss,
        ends_may_cross=isinstance(options.start, AtTimestamp) or isinstance(options.end, AtTimestamp),
    )


def _offset_of(bound: Bound, log: PartitionLogDescription, connection: BrokerConnection) -> int:
    if isinstance(bound, AtEarliest):
        return log.log_start_offset
    if isinstance(bound, AtLatest):
        return log.high_watermark
    if isinstance(bound, AtTimestamp):
        return _offset_at_time(bound, log, connection)
    given = next(offset for topic, p, offset in bound.offsets if (topic, p) == (log.topic, log.partition))
    return {EARLIEST_OFFSET: log.log_start_offset, LATEST_OFFSET: log.high_watermark}.get(given, given)


def _offset_at_time(bound: AtTimestamp, log: PartitionLogDescription, connection: BrokerConnection) -> int:
    offset = connection.offset_at(log.topic, log.partition, bound.timestamp_ms)
    if offset >= log.high_watermark and bound.must_match:
        raise Invalid(
            f"{log.name} has no record at or after startingTimestamp {bound.timestamp_ms}: choose an earlier one, or "
            "set startingOffsetsByTimestampStrategy=latest to read nothing of such partitions",
            field="startingTimestamp",
        )
    return min(offset, log.high_watermark)
