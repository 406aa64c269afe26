"""Plans the micro-batches of a stream: up to which offsets the next one reads, and the tasks of one.

The ends of the log are asked for without a proof that the leader still leads, because a micro-batch every quarter of a
second would otherwise cost requests to the store. An end that is too old only delays records. If an answer contradicts
the offsets of the stream, the planner asks again with the proof before it reports data loss. The proof is asked for in
any case where the end is a promise: at the beginning of a stream, and for Trigger.AvailableNow.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.spark_connector.options.bounds import check_covers
from tidelog.spark_connector.options.stream_options import StreamOptions
from tidelog.spark_connector.options.subscription import Assignment, TopicNames
from tidelog.spark_connector.reads.bound_offsets import offsets_of
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.pruning import OFFSET_MAX
from tidelog.spark_connector.reads.rows import ReadTask
from tidelog.spark_connector.reads.slices import TopicRef, bounded_range, reads_logger
from tidelog.spark_connector.reads.snapshot import TopicSnapshot
from tidelog.spark_connector.reads.task_plan import tasks_of
from tidelog.spark_connector.streams.admission import Backlogs, shared_out, waits_for_more
from tidelog.spark_connector.streams.record_sizes import offsets_in
from tidelog.spark_connector.streams.stream_offsets import BEGINNING, StreamOffsets, TopicOffsets
from tidelog.spark_connector.streams.stream_progress import (
    Logs,
    TopicBatch,
    at_ends,
    backlogs_of,
    continued,
    latest_of,
    losses,
    ranges_between,
)
from tidelog.storage.errors import NotFound
from tidelog.storage.runtime import Clock
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest


class StreamPlanner:
    """The driver's side of a stream. `latest` is the end of the log that it saw last."""

    def __init__(self, options: StreamOptions, connection: BrokerConnection, clock: Clock) -> None:
        self._options = options
        self._connection = connection
        self._clock = clock
        self._target: Logs | None = None
        self._last_batch_s: float | None = None
        self.latest: StreamOffsets | None = None

    def end_now(self) -> None:
        """From now on the stream ends where the log ends now, and never waits for more (Trigger.AvailableNow)."""
        self._target = self._ends(fresh=True)

    def next_end(self, start: StreamOffsets, *, limited: bool) -> StreamOffsets:
        """Up to where the micro-batch from `start` on reads; `start` if there is nothing to read, or too little. Raises
        `NotFound` for data loss, `Invalid`, `Unavailable`."""
        logs = self._logs(start)
        self.latest = latest_of(logs)
        if not start.begun:
            return self._beginning(logs)
        self._report([*self._unknown(start, logs), *losses(start, logs)])
        at = continued(start, logs)
        backlogs = backlogs_of(at, logs)
        if limited and self._target is None and self._waits(backlogs):
            return start
        return at_ends(at, shared_out(backlogs, self._offsets_max(backlogs) if limited else None))

    def tasks(self, start: StreamOffsets, end: StreamOffsets) -> list[ReadTask]:
        """The tasks of the micro-batch from `start` to `end`. The two decide which offsets are read; the broker says
        only where they are. Raises `DataLoss`, `NotFound`, `Invalid`, `Unavailable`."""
        snapshots = (self._snapshot(batch) for batch in ranges_between(start, end))
        return tasks_of(self._options.read, [snapshot for snapshot in snapshots if snapshot])

    def _logs(self, start: StreamOffsets) -> Logs:
        if self._target is not None:
            return self._target
        logs = self._ends(fresh=not start.begun)
        return self._ends(fresh=True) if start.begun and losses(start, logs) else logs

    def _beginning(self, logs: Logs) -> StreamOffsets:
        """The first offsets, which the options decide."""
        read = self._options.read
        if unknown := self._unknown(BEGINNING, logs):
            raise NotFound(f"{'; '.join(unknown)}: create it before the stream starts")
        check_covers(read.start, [(name, ends.partition) for name, log in logs.items() for ends in log.partitions])
        return StreamOffsets({name: self._first_offsets(log) for name, log in logs.items()})

    def _unknown(self, start: StreamOffsets, logs: Logs) -> list[str]:
        """Topics that are subscribed by name and do not exist, except those of `start`."""
        subscription = self._options.read.subscription
        names = subscription.names if isinstance(subscription, TopicNames) else ()
        return [f"there is no topic {name}" for name in names if name not in logs and name not in start.topics]

    def _first_offsets(self, log: TopicLogDescription) -> TopicOffsets:
        read = self._options.read
        asked = offsets_of(read.start, log, self._connection)
        ranges = (
            bounded_range(
                log.topic,
                ends,
                asked[ends.partition],
                max(asked[ends.partition], ends.high_watermark),
                fail_on_data_loss=read.fail_on_data_loss,
            )
            for ends in log.partitions
        )
        return TopicOffsets(log.topic_id, {each.ends.partition: each.start for each in ranges})

    def _waits(self, backlogs: Backlogs) -> bool:
        now_s = self._clock.monotonic()
        waited_ms = None if self._last_batch_s is None else (now_s - self._last_batch_s) * 1_000
        if waits_for_more(backlogs, self._options.limits, waited_ms):
            return True
        self._last_batch_s = now_s
        return False

    def _offsets_max(self, backlogs: Backlogs) -> int | None:
        limits = self._options.limits
        bounds = [limits.offsets_max] if limits.offsets_max else []
        if limits.bytes_max:
            bounds.append(offsets_in(limits.bytes_max, backlogs, self._connection))
        return min(bounds, default=None)

    def _report(self, lost: list[str]) -> None:
        """Raises `NotFound`, or logs it if data loss is allowed."""
        if not lost:
            return
        text = "; ".join(lost[:10])
        if self._options.read.fail_on_data_loss:
            raise NotFound(
                f"{text}. Records may have been missed: start with a new checkpoint, or set failOnDataLoss=false to "
                "continue with the records that exist"
            )
        reads_logger.warning("%s; the stream continues with the records that exist (failOnDataLoss=false)", text)

    def _ends(self, *, fresh: bool) -> Logs:
        found = ((name, self._log_ends(name, partitions, fresh=fresh)) for name, partitions in self._subscribed())
        return {name: log for name, log in found if log is not None}

    def _subscribed(self) -> Iterator[tuple[str, tuple[int, ...] | None]]:
        """Topics, with the partitions that are assigned; None: all of them."""
        subscription = self._options.read.subscription
        if isinstance(subscription, TopicNames):
            yield from ((name, None) for name in subscription.names)
        elif isinstance(subscription, Assignment):
            for name in dict.fromkeys(name for name, _ in subscription.partitions):
                yield name, tuple(partition for of, partition in subscription.partitions if of == name)
        else:
            names = (topic.name for topic in self._connection.topics())
            yield from ((name, None) for name in names if subscription.pattern.fullmatch(name))

    def _log_ends(self, name: str, partitions: tuple[int, ...] | None, *, fresh: bool) -> TopicLogDescription | None:
        """The ends of the topic without its segments; None if there is no such topic."""
        try:
            return self._connection.topic_log(
                name, TopicLogRequest(partitions=partitions, min_offset=OFFSET_MAX, fresh=fresh)
            )
        except NotFound:
            return None

    def _snapshot(self, batch: TopicBatch) -> TopicSnapshot | None:
        """Where the records of the batch are; None if the topic is gone and data loss is allowed."""
        try:
            topic = self._connection.topic(batch.name)
        except NotFound:
            self._report([f"topic {batch.name} was deleted before the batch was read"])
            return None
        if batch.topic_id not in (None, topic.topic_id):
            self._report([f"topic {batch.name} was deleted and created again before the batch was read"])
            return None
        if beyond := [number for number in batch.offsets if number >= len(topic.partitions)]:
            self._report([f"{batch.name} has no partition {number}" for number in beyond])
            batch = batch.without(beyond)
        log = self._log_of(batch)
        ranges = tuple(
            bounded_range(
                batch.name, ends, *batch.offsets[ends.partition], fail_on_data_loss=self._options.read.fail_on_data_loss
            )
            for ends in log.partitions
        )
        return TopicSnapshot(TopicRef.of(topic), log, ranges)

    def _log_of(self, batch: TopicBatch) -> TopicLogDescription:
        starts, ends = zip(*batch.offsets.values(), strict=True)
        request = TopicLogRequest(
            partitions=tuple(batch.offsets), min_offset=min(starts), max_offset=max(ends) - 1, fresh=False
        )
        log = self._connection.topic_log(batch.name, request)
        if all(batch.offsets[each.partition][1] <= each.high_watermark for each in log.partitions):
            return log
        return self._connection.topic_log(batch.name, TopicLogRequest(request.partitions, min(starts), max(ends) - 1))
