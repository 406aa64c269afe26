"""One snapshot of the log for one read: the offsets of each partition, decided once, from one answer per topic.

Records that are produced or archived after the snapshot do not change the result of the read.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.spark_connector.options.bounds import AtTimestamp, AtTimestamps, check_covers
from tidelog.spark_connector.options.read_options import ReadOptions
from tidelog.spark_connector.reads.bound_offsets import offsets_of
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.chosen_topics import chosen_topics
from tidelog.spark_connector.reads.pruning import EVERYTHING, OFFSET_MAX, Pruning
from tidelog.spark_connector.reads.slices import (
    PartitionRange,
    Slice,
    TopicRef,
    bounded_range,
    slices_of,
    through_broker,
)
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest

THROUGH_BROKER = "broker"


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
        chosen = chosen_topics(options.subscription, connection)
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


def _snapshot(
    options: ReadOptions,
    connection: BrokerConnection,
    topic: TopicRef,
    partitions: tuple[int, ...],
    pruning: Pruning,
) -> TopicSnapshot:
    log = connection.topic_log(topic.name, _request(partitions, pruning))
    starts, ends = (offsets_of(bound, log, connection) for bound in (options.start, options.end))
    by_time = any(isinstance(bound, AtTimestamp | AtTimestamps) for bound in (options.start, options.end))
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
