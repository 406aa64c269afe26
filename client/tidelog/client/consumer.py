"""Read the records of topics: as a member of a group, or on your own.

    with Consumer("http://127.0.0.1:8080", "web", group="billing") as consumer:
        for record in consumer:                     # shares the partitions of web with the group's other members
            print(record.partition, record.offset, record.value)

    with Consumer(broker, "web", start="-1000") as consumer:
        while batch := consumer.poll(timeout_s=1):  # Arrow tables: no Python per record
            print(batch.partition, batch.records.num_rows)

With a group, the brokers keep the positions. The consumer commits processed records every few seconds and in `close`;
with ``auto_commit=False`` the program calls `commit`. A record counts as processed when the program asks for the next
one. So after a crash or an error, the records that were not processed are read again: at least once.

While the program works, threads fetch the next records and send heartbeats. Callbacks run in the thread that polls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import Self

from tidelog.client.admin import checked_position
from tidelog.client.broker_access import Broker, access_of
from tidelog.client.connection import DEFAULT_BROKER
from tidelog.client.consumed import Batch, CommittedPosition, Record, TopicPartition, record_pieces
from tidelog.client.consumer_core import ConsumerCore
from tidelog.client.consumer_options import ConsumerOptions
from tidelog.client.fetched_parts import Part
from tidelog.client.membership import Subscription
from tidelog.client.rebalances import OnPartitions, RebalanceCallbacks
from tidelog.storage.errors import Invalid, RecordsLost, TidelogError
from tidelog.storage.runtime import Runtime

LONG_POLL_S = 1.0

logger = logging.getLogger("tidelog.client")


def log_failure(error: TidelogError | None) -> None:
    """The default of `Consumer.commit_async`: it logs an error."""
    if error is not None:
        logger.warning("offsets were not committed: %s", error)


class Consumer:
    """Reads `topic` (one, or several). With a `group` it shares their partitions with the group's other members;
    without one it reads `partitions` of them (None: all, also those that are added later).

    `start` is where to begin in a partition for which the group has no committed offset, or without a group: see
    `checked_position`. `on_loss` is called for records that the log has lost; they are skipped, logged and counted in
    `lost_records`. Only one thread at a time may use a consumer. Raises `Invalid` and `NotFound` for wrong input."""

    def __init__(
        self,
        broker: Broker = DEFAULT_BROKER,
        topic: str | Sequence[str] = (),
        *,
        group: str | None = None,
        partitions: Sequence[int] | None = None,
        start: str | int = "earliest",
        options: ConsumerOptions | None = None,
        on_loss: Callable[[TopicPartition, RecordsLost], object] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        position = checked_position(start)
        self._options = options or ConsumerOptions()
        self._core = ConsumerCore(access_of(broker), group, position, self._options, on_loss, runtime or Runtime())
        self._clock = self._core.clock
        self._part: Part | None = None
        self._closed = self._closing = self._woken = False
        topics = (topic,) if isinstance(topic, str) else tuple(topic)
        try:
            self._begin(topics, partitions, group)
        except BaseException:
            self.close()
            raise

    @property
    def lost_records(self) -> int:
        """How many records of its partitions the log has lost, as far as this consumer has met them."""
        return self._core.lost_records

    def subscribe(
        self,
        topics: str | Collection[str] = (),
        *,
        pattern: str | None = None,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Join the group for `topics` and for those whose names match `pattern` (RE2). Called again, it replaces the
        subscription. The callbacks get the consumer and the partitions; see `RebalanceCallbacks`."""
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if not any(names) and pattern is None:
            raise Invalid("subscribe to topics, to a pattern, or to both", field="topics")
        options = self._options
        wanted = Subscription(
            names,
            pattern,
            options.instance_id,
            options.assignor,
            options.rack,
            None if options.session_timeout_s is None else round(options.session_timeout_s * 1_000),
            round(options.max_poll_interval_s * 1_000),
            options.client_id,
        )
        self._core.join(self, wanted).callbacks = RebalanceCallbacks(on_assign, on_revoke, on_lost)

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | str]) -> None:
        """Read these partitions, instead of those of before, and take no part in rebalancing. A mapping says where to
        begin; otherwise it is the group's committed offset or `start`."""
        if self._core.rebalances is not None:
            raise Invalid("a consumer that has subscribed gets its partitions from its group", field="partitions")
        given = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, self._core.start)
        starts = {TopicPartition(*one): _checked(position) for one, position in given.items()}
        if self._core.group is not None and not isinstance(partitions, Mapping) and starts:
            committed = self.committed(starts)
            starts |= {one: at.offset for one, at in committed.items()}
        self._core.assign(starts)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        with self._core.changed:
            return self._core.reading.assigned

    @property
    def member_id(self) -> str:
        """The id of this member in its group; empty if it has not subscribed."""
        return "" if self._core.rebalances is None else self._core.rebalances.member.member_id

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give out no records of these partitions until `resume`. They stay assigned. Raises `Invalid`."""
        self._core.pause(partitions, paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Give out records of these partitions again."""
        self._core.pause(partitions, paused=False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        with self._core.changed:
            return self._core.reading.paused

    def seek(self, partition: TopicPartition, position: int | str) -> None:
        """Go on at `position` (see `checked_position`). Raises `Invalid` for a partition that is not assigned."""
        self._core.seek(TopicPartition(*partition), _checked(position))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the program gets. It may ask the broker, after a `seek` in words."""
        return self._core.position(TopicPartition(*partition))

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """`position` of each assigned partition."""
        return {partition: self.position(partition) for partition in sorted(self.assignment)}

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The end of each assigned partition in its last answer; -1 before the first fetch."""
        with self._core.changed:
            reading = self._core.reading
            return {partition: reading.ends(partition)[1] for partition in sorted(reading.assigned)}

    def end_offsets(self) -> Mapping[TopicPartition, int]:
        """The present end of each assigned partition. It asks the broker."""
        return {partition: self._core.admin.offset(*partition, "end") for partition in sorted(self.assignment)}

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records the program has not got yet, as of the partition's last answer; None before it."""
        end = self.high_watermarks.get(TopicPartition(*partition), -1)
        return None if end < 0 else max(0, end - self.position(partition))

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, CommittedPosition]:
        """The group's committed offsets of `partitions` (None: of the assigned ones). It asks the broker."""
        wanted = self.assignment if partitions is None else frozenset(TopicPartition(*one) for one in partitions)
        return self._core.session().committed(wanted) if wanted else {}

    def commit(self, offsets: Mapping[TopicPartition, int | CommittedPosition] | None = None) -> None:
        """Commit `offsets`, or the positions of all that was given out, and return when they are stored. Raises
        `MemberFenced` or `UnknownMember` if the group has given the partitions to others: nothing was committed, and
        the next `poll` reports them as lost."""
        if wanted := self._commits(offsets):
            self._core.session().commit(wanted)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | CommittedPosition] | None = None,
        on_commit: Callable[[TidelogError | None], None] = log_failure,
    ) -> None:
        """As `commit`, without waiting. A thread calls `on_commit` with None, or with the error."""
        if wanted := self._commits(offsets):
            self._core.session().commit_soon(wanted, on_commit)

    def poll(self, timeout_s: float = 1.0) -> Batch | None:
        """The next batch of any partition, or None if none arrived within `timeout_s`. Callbacks run here. Records of
        earlier polls count as done.

        Raises `OutOfRange`, with the range of the log, if the log no longer holds the position. (With a group, reading
        goes on at `start` instead.) Raises errors that no repetition mends; without a group also `Unavailable`."""
        give_up_at = self._clock.monotonic() + timeout_s
        while True:
            if self._closed or self._closing:
                raise Invalid("the consumer is closed")
            self._core.attend()
            left_s = give_up_at - self._clock.monotonic()
            part = self._core.next_part(min(left_s, LONG_POLL_S))
            batch = None if part is None else self._core.opened(part)
            if batch is not None and batch.records.num_rows:
                self._part = part
                return batch
            if part is None and (left_s <= 0 or self._woken):
                self._woken = False
                return None

    def batches(self, *, follow: bool = True) -> Iterator[Batch]:
        """Batch after batch, without an end. With `follow` off, up to the present ends of the partitions."""
        ends = self.end_offsets() if not follow and self.assignment else None
        while follow or ends is None or not self._core.reached(ends):
            batch = self.poll(LONG_POLL_S)
            if not follow and ends is None and self.assignment:
                ends = self.end_offsets()
            if batch is not None:
                yield batch if ends is None else batch.before(ends.get(batch.topic_partition, batch.next_offset))

    def records(self, *, follow: bool = True) -> Iterator[Record]:
        """The records of `batches` one by one. If the program breaks off, the rest comes again in the next poll."""
        return chain.from_iterable(map(self.given_out, self.batches(follow=follow)))

    def given_out(self, batch: Batch) -> Iterator[Record]:
        """The records of the batch that the last `poll` returned, one by one, so that the position follows them."""
        if self._part is None or not batch.records.num_rows:
            return
        hand = self._core.given_out.take(self._part, int(batch.records.column("offset")[0].as_py()))
        for records in record_pieces(batch):
            for record in records:
                hand.record = record
                yield record
                if hand.ended:  # the rest comes again, if the partition stays
                    return
        self._core.given_out.put_away(hand)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def wake_up(self, *, closing: bool = False) -> None:
        """From any thread: let the poll that is under way, or the next one, return at once. `closing`: with an
        error, because `close` follows."""
        self._woken, self._closing = True, self._closing or closing
        with self._core.changed:
            self._core.changed.notify_all()

    def close(self, *, failed: bool = False) -> None:
        """Commit if `auto_commit` is on, leave the group, and release threads and sockets. It returns within
        `close_timeout_s` (without the program's own callbacks), also if the broker is down. Calling it again does
        nothing. `failed`: the records that were given out last are not done; they are read again."""
        if not self._closed:
            self._closed = True
            self._core.close(failed=failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close(failed=error is not None)

    def _begin(self, topics: Sequence[str], partitions: Sequence[int] | None, group: str | None) -> None:
        if group is not None and partitions is not None:
            raise Invalid("a group assigns the partitions: leave partitions out, or call assign", field="partitions")
        if group is not None and topics:
            self.subscribe(topics)
        elif group is None and partitions is None:
            self._core.read_whole(topics)
        elif partitions is not None:
            self._core.read_some(topics, partitions)

    def _commits(
        self, offsets: Mapping[TopicPartition, int | CommittedPosition] | None
    ) -> Mapping[TopicPartition, CommittedPosition]:
        given = self._core.given_out.offsets() if offsets is None else offsets
        return {
            TopicPartition(*one): at if isinstance(at, CommittedPosition) else CommittedPosition(at)
            for one, at in given.items()
        }


def _checked(position: int | str) -> int | str:
    """`position` as the interface has it: a number if it is one."""
    text = checked_position(position)
    return int(text) if text.isdigit() else text
