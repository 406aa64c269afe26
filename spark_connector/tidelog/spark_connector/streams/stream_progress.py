"""What a stream at some offsets reads next, given the ends of the log. All functions are pure.

`ranges_between` decides which offsets a micro-batch reads, from its two offsets alone. So a batch that is planned again
after a crash reads the same offsets, although the log has grown and its records may lie elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tidelog.spark_connector.streams.admission import Backlog, Backlogs, TopicPartition
from tidelog.spark_connector.streams.stream_offsets import StreamOffsets, TopicOffsets
from tidelog.storage.errors import Invalid
from tidelog.wire.topic_log import TopicLogDescription

Logs = Mapping[str, TopicLogDescription]
"""The ends of the partitions that are read, by topic."""


@dataclass(frozen=True)
class TopicBatch:
    """The offsets ``[start, end)`` of each partition of a topic that one micro-batch reads, none of them empty."""

    name: str
    topic_id: str | None
    offsets: Mapping[int, tuple[int, int]]

    def without(self, partitions: Collection[int]) -> TopicBatch:
        return replace(
            self, offsets={number: pair for number, pair in self.offsets.items() if number not in partitions}
        )


def ranges_between(start: StreamOffsets, end: StreamOffsets) -> list[TopicBatch]:
    """What the micro-batch from `start` to `end` reads. A partition that `start` does not have is new and is read from
    offset 0, and so is a topic that was created again. The batch at the beginning of a stream reads nothing: it only
    writes the first offsets into the checkpoint. Raises `Invalid`."""
    if not start.begun:
        _check_begun_here(end)
        return []
    batches = (_topic_batch(name, start.topics.get(name), to) for name, to in end.topics.items())
    return [batch for batch in batches if batch.offsets]


def _topic_batch(name: str, since: TopicOffsets | None, to: TopicOffsets) -> TopicBatch:
    starts = since.next_offsets if since and since.is_of(to) else {}
    pairs = {partition: (starts.get(partition, 0), end) for partition, end in to.next_offsets.items()}
    return TopicBatch(name, to.topic_id, {partition: pair for partition, pair in pairs.items() if pair[0] < pair[1]})


def _check_begun_here(end: StreamOffsets) -> None:
    """The first batch of Spark's Kafka source reads records, from offsets that it keeps elsewhere."""
    if not end.has_ids:
        raise Invalid(
            "the checkpoint has only the first batch of Spark's Kafka source, which is not finished: let the old query "
            "finish a batch before its stream is moved, or start with a new checkpoint",
            field="checkpointLocation",
        )


def losses(start: StreamOffsets, logs: Logs) -> list[str]:
    """What `start` names and the log does not have. A sentence each."""
    return [loss for name, topic in sorted(start.topics.items()) for loss in _losses(name, topic, logs.get(name))]


def _losses(name: str, topic: TopicOffsets, log: TopicLogDescription | None) -> Iterator[str]:
    if log is None:
        yield f"topic {name} is in the checkpoint, but it was deleted or is not subscribed any more"
        return
    if topic.topic_id not in (None, log.topic_id):
        yield f"topic {name} was deleted and created again"
        return
    ends = {each.partition: each for each in log.partitions}
    for partition, offset in topic.next_offsets.items():
        if partition not in ends:
            yield f"{name}-{partition} is in the checkpoint, but it does not exist or is not assigned any more"
        elif offset > (found := ends[partition]).high_watermark:
            holds = f"[{found.log_start_offset}, {found.high_watermark})"
            yield f"the stream is at offset {offset} of {name}-{partition}, but the log holds {holds}"


def continued(start: StreamOffsets, logs: Logs) -> StreamOffsets:
    """`start` for the partitions that the log has now: new ones, and those of a topic that was created again, are at
    offset 0."""
    found = {}
    for name, log in logs.items():
        now = TopicOffsets(log.topic_id, {each.partition: 0 for each in log.partitions})
        since = start.topics.get(name)
        if since and since.is_of(now):
            now = now.moved({number: since.next_offsets.get(number, 0) for number in now.next_offsets})
        found[name] = now
    return StreamOffsets(found)


def backlogs_of(at: StreamOffsets, logs: Logs) -> Backlogs:
    """What can be read of each partition of `at`. Records below the log start are gone, so they do not count."""
    return {
        (name, ends.partition): Backlog(
            max(at.topics[name].next_offsets[ends.partition], ends.log_start_offset), ends.high_watermark
        )
        for name, log in logs.items()
        for ends in log.partitions
    }


def at_ends(at: StreamOffsets, ends: Mapping[TopicPartition, int]) -> StreamOffsets:
    """`at` with the next offset of each partition."""
    by_topic: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for (name, partition), end in ends.items():
        by_topic[name][partition] = end
    return replace(at, topics={name: topic.moved(by_topic[name]) for name, topic in at.topics.items()})


def latest_of(logs: Logs) -> StreamOffsets:
    """The ends of the log as offsets of a stream."""
    return StreamOffsets(
        {
            name: TopicOffsets(log.topic_id, {each.partition: each.high_watermark for each in log.partitions})
            for name, log in logs.items()
        }
    )
