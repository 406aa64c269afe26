"""Append records to a topic.

    with Producer("http://127.0.0.1:8080", "web") as producer:
        for line in lines:
            producer.send(line)            # returns at once; batches are sent in the background
        producer.flush()                   # returns when all are acknowledged, or raises the first error

`send` puts the record into a batch. A batch that is full (`batch_bytes`) or `linger_ms` old becomes Arrow columns, is
split over partitions as Kafka's clients do, and waits in the lane of its partition. Threads send the requests: several
at once, but one at a time per partition. Memory is bounded: beyond `buffer_bytes`, `send` waits.

With `acks="all"` each request carries a producer id and a sequence, so the log takes a repeated request once (inv. 7).

- A refused record (too large, for example) is left out, and the other records of its batch are sent. `on_refusal` gets
  it. Without that callback, the next `flush` or `close` raises its error, once.
- A request that fails for good fails its producer: waiting records are dropped, and every later call raises that error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import pyarrow as pa

from tidelog.client.arrow_stream import checked_compression
from tidelog.client.batching import RECORD_OVERHEAD_BYTES, Gathering, Headers, columns_of
from tidelog.client.broker_access import Broker, access_of
from tidelog.client.connection import DEFAULT_BROKER, Connection
from tidelog.client.delivery import Delivered, Delivery, ProducerIdentity, held_sequences
from tidelog.client.delivery_futures import DeliveredRecord
from tidelog.client.leaders import Leaders
from tidelog.client.outcomes import Outcomes
from tidelog.client.partitioners import partitions_by
from tidelog.client.producer_options import ProducerOptions
from tidelog.client.refusals import Refused
from tidelog.client.sending import Sending
from tidelog.client.topic_lookup import partition_count
from tidelog.storage.errors import Invalid, Unavailable
from tidelog.storage.runtime import Runtime

ABANDON_S = 1.0
"""How long `close` waits for its threads after it has broken off their requests."""


class Producer:
    """Sends to one topic, from any thread. A sending thread calls `on_delivery` for each acknowledged request, in order
    within a partition, and `on_refusal` for each record that the broker refuses."""

    def __init__(
        self,
        broker: Broker = DEFAULT_BROKER,
        topic: str = "",
        options: ProducerOptions | None = None,
        *,
        on_delivery: Callable[[Delivered], None] | None = None,
        on_refusal: Callable[[Refused], None] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.topic = topic
        self._options = options or ProducerOptions()
        checked_compression(self._options.compression)
        self._runtime = runtime or Runtime()
        self._connection = Connection(broker, deadline_s=self._options.delivery_timeout_s, runtime=self._runtime)
        self._leaders = Leaders(access_of(broker), self._connection, self._runtime, self._options.in_flight_max)
        self._partition_count = partition_count(broker, topic, self._options.connect_timeout_s, self._runtime)
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._changed = threading.Condition(self._lock)
        self._outcomes = Outcomes(self._changed, on_delivery, on_refusal)
        partitions = partitions_by(self._options.partitioner)
        self._gathering = Gathering(topic, self._partition_count, self._outcomes.refusals, partitions)
        self._producer = self._identity()
        self._sending = self._start_sending()

    @property
    def first_open(self) -> int | None:
        """The number (from 0, in the order of `send`) of the first record that is neither known to be in the log nor
        refused; None if there is none."""
        with self._lock:
            found = (self._sending.lanes.first_open, self._gathering.first_number)
            return min((number for number in found if number is not None), default=None)

    @property
    def has_room(self) -> bool:
        """Whether `send` would return at once. `wait_for_room` waits for that."""
        with self._lock:
            return self._sending.has_room

    def wait_for_room(self) -> None:
        """Return when the buffer has room again. Raises the error of an earlier request that failed."""
        with self._lock:
            self._sending.await_room()

    @property
    def partition_count(self) -> int:
        """How many partitions the topic had when this producer was created."""
        return self._partition_count

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Put a record into the batch. It waits only while the buffer is full. Raises the error of an earlier request
        that failed, and `Invalid` for a partition that does not exist and after `close`."""
        if partition is not None:
            self._check_partition(partition)
        self._acquire()  # a `with` statement costs half as much again, and this runs for every record
        try:
            draft = self._gathering.draft
            draft.append(value)
            if key is not None or timestamp_ms is not None or headers is not None or partition is not None:
                draft.put_rest(key, timestamp_ms, headers, partition)
            size_bytes = RECORD_OVERHEAD_BYTES if value is None else len(value) + RECORD_OVERHEAD_BYTES
            room_bytes = draft.room_bytes = draft.room_bytes - size_bytes
            if room_bytes <= 0:
                self._sending.begin_or_seal(draft)
        finally:
            self._release()

    def send_future(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> Future[DeliveredRecord]:
        """As `send`, with a future of this record's outcome: where it is, or the error that kept it out. It costs some
        microseconds more than `send`. A refusal goes to the future only."""
        with self._lock:
            draft, before = self._gathering.draft, self._gathering.newest_number
            future = self._outcomes.futures.add(before + 1)
            try:
                self.send(value, key, timestamp_ms=timestamp_ms, headers=headers, partition=partition)
            except BaseException:
                if self._gathering.draft is draft and self._gathering.newest_number == before:
                    self._outcomes.futures.forget(before + 1)
                raise
        return future

    def send_batch(self, records: pa.Table | pa.RecordBatch, *, partition: int | None = None) -> None:
        """Append Arrow records: a column `value` and optionally `key`, `timestamp`, `headers`, `partition`. The
        argument `partition` overrides the columns."""
        table = columns_of(records)
        if partition is not None:
            self._check_partition(partition)
        pieces = max(1, -(-table.nbytes // self._options.request_bytes))
        rows = max(1, -(-table.num_rows // pieces))
        with self._lock:
            self._sending.check()
            self._sending.seal()
            for start in range(0, table.num_rows, rows):
                self._sending.queue(self._gathering.shares(table.slice(start, rows), partition))

    def resume(self) -> Mapping[int, int]:
        """Continue after an earlier producer with the same `producer_id` and epoch, even if the outcome of its last
        requests was unknown. Returns how many of its records each partition holds; the records sent from now on follow
        them. Call it before the first `send`. Raises `Invalid` unless acks is "all"."""
        if self._producer is None:
            raise Invalid('only a producer with acks="all" can be resumed', field="acks")
        held = held_sequences(self._connection, self.topic, self._partition_count, self._producer)
        with self._lock:
            self._sending.lanes.begin_at(held)
        return held

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when every record sent so far is answered. Raises the first error of a failed request or refused
        record, and `Unavailable` if `timeout_s` passes first."""
        self._flush(timeout_s, "the producer keeps sending them")

    def close(self) -> None:
        """Flush for at most `close_timeout_s`, end the threads, release the sockets. Raises the errors of `flush`;
        after `Unavailable` it is unknown which of the last records are in the log. Calling it again does nothing."""
        if self._sending.closing:
            return
        try:
            self._flush(self._options.close_timeout_s, "it is unknown which of them are in the log")
        except BaseException:
            self._stop(abandon=True)
            raise
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._stop(abandon=True)

    def _identity(self) -> ProducerIdentity | None:
        """None with less than acks=all: such an answer says nothing about the commit, so a lost one is not asked for
        again."""
        if self._options.acks != "all":
            return None
        producer_id = self._options.producer_id or self._runtime.entropy.new_id()
        return ProducerIdentity(producer_id, self._options.producer_epoch)

    def _start_sending(self) -> Sending:
        options, outcomes = self._options, self._outcomes
        delivery = Delivery(
            self._connection,
            self._leaders,
            options.delivery_timeout_s,
            self.topic,
            options.acks,
            self._producer,
            outcomes.delivered,
            outcomes.refused,
            options.compression,
        )
        threads = min(options.in_flight_max, self._partition_count)
        clock = self._runtime.clock
        sending = Sending(self._changed, self._gathering, outcomes, delivery.deliver, options, clock, threads)
        sending.start()
        return sending

    def _flush(self, timeout_s: float | None, otherwise: str) -> None:
        with self._lock:
            self._sending.seal()
            if not self._sending.await_answers(timeout_s):
                left = self._sending.lanes.open_records
                raise Unavailable(f"{left} records were not answered within {timeout_s:g} s: {otherwise}")
            self._sending.raise_failure()
            self._outcomes.refusals.raise_first()

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self._partition_count:
            raise Invalid(
                f"{self.topic} has no partition {partition}: it has 0 to {self._partition_count - 1}", field="partition"
            )

    def _stop(self, *, abandon: bool = False) -> None:
        """End the threads. `abandon`: break off requests under way, whose outcome stays unknown."""
        with self._lock:
            self._sending.stop()
        if abandon:
            self._close_connections()
        self._sending.join(ABANDON_S if abandon else None)
        self._close_connections()
        with self._lock:
            unknown = Unavailable("the producer was closed: it is unknown whether the record is in the log")
            self._outcomes.futures.fail(unknown)

    def _close_connections(self) -> None:
        """Break off requests under way, and release the sockets. The leaders come last: a direct call that is broken
        off goes on with the connection, which must be closed then."""
        self._connection.close()
        self._leaders.close()
