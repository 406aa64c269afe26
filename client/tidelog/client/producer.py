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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import pyarrow as pa

from tidelog.client.arrow_stream import checked_compression
from tidelog.client.batching import RECORD_OVERHEAD_BYTES, Draft, Extras, Gathering, Headers, columns_of
from tidelog.client.broker_access import Broker
from tidelog.client.connection import DEFAULT_BROKER, Connection
from tidelog.client.delivery import Delivered, Delivery, ProducerIdentity, held_sequences
from tidelog.client.delivery_futures import DeliveredRecord, DeliveryFutures
from tidelog.client.lanes import Lanes, Parcel, Share
from tidelog.client.partitioners import partitions_by
from tidelog.client.producer_options import ProducerOptions
from tidelog.client.refusals import Part, Refusals, Refused
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
        self._partition_count = partition_count(broker, topic, self._options.connect_timeout_s, self._runtime)
        self._lanes = Lanes(request_bytes=self._options.request_bytes, request_records=self._options.request_records)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._futures = DeliveryFutures()
        self._refusals = Refusals(self._futures.refuse)
        partitions = partitions_by(self._options.partitioner)
        self._gathering = Gathering(topic, self._partition_count, self._refusals, partitions)
        self._on_delivery = on_delivery
        self._on_refusal = on_refusal
        self._failure: Exception | None = None
        self._closing = False
        self._producer = self._identity()
        self._delivery = Delivery(
            self._connection,
            topic,
            self._options.acks,
            self._producer,
            self._delivered,
            self._refused,
            self._options.compression,
        )
        self._threads = [
            threading.Thread(target=self._send_on, name=f"tidelog-producer-{n}", daemon=True)
            for n in range(min(self._options.in_flight_max, self._partition_count))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def first_open(self) -> int | None:
        """The number (from 0, in the order of `send`) of the first record that is neither known to be in the log nor
        refused; None if there is none."""
        with self._lock:
            found = (self._lanes.first_open, self._gathering.first_number)
            return min((number for number in found if number is not None), default=None)

    @property
    def has_room(self) -> bool:
        """Whether `send` would return at once. `wait_for_room` waits for that."""
        with self._lock:
            return self._lanes.bytes < self._options.buffer_bytes

    def wait_for_room(self) -> None:
        """Return when the buffer has room again. Raises the error of an earlier request that failed."""
        with self._changed:
            self._await_room()

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
        with self._lock:  # a third cheaper than the condition, and this line runs for every record
            draft = self._gathering.draft
            draft.append(value)
            if key is not None:
                draft.put_key(key)
            if timestamp_ms is not None or headers is not None or partition is not None:
                draft.extras[len(draft) - 1] = Extras(timestamp_ms, headers, partition)
            draft.room_bytes -= RECORD_OVERHEAD_BYTES if value is None else len(value) + RECORD_OVERHEAD_BYTES
            if draft.room_bytes <= 0:
                self._begin_or_seal(draft)

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
            future = self._futures.add(before + 1)
            try:
                self.send(value, key, timestamp_ms=timestamp_ms, headers=headers, partition=partition)
            except BaseException:
                if self._gathering.draft is draft and self._gathering.newest_number == before:
                    self._futures.forget(before + 1)
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
        with self._changed:
            self._check()
            self._seal()
            for start in range(0, table.num_rows, rows):
                self._queue(self._gathering.shares(table.slice(start, rows), partition))

    def resume(self) -> Mapping[int, int]:
        """Continue after an earlier producer with the same `producer_id` and epoch, even if the outcome of its last
        requests was unknown. Returns how many of its records each partition holds; the records sent from now on follow
        them. Call it before the first `send`. Raises `Invalid` unless acks is "all"."""
        if self._producer is None:
            raise Invalid('only a producer with acks="all" can be resumed', field="acks")
        held = held_sequences(self._connection, self.topic, self._partition_count, self._producer)
        with self._lock:
            self._lanes.begin_at(held)
        return held

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when every record sent so far is answered. Raises the first error of a failed request or refused
        record, and `Unavailable` if `timeout_s` passes first."""
        self._flush(timeout_s, "the producer keeps sending them")

    def close(self) -> None:
        """Flush for at most `close_timeout_s`, end the threads, release the sockets. Raises the errors of `flush`;
        after `Unavailable` it is unknown which of the last records are in the log. Calling it again does nothing."""
        if self._closing:
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

    def _flush(self, timeout_s: float | None, otherwise: str) -> None:
        with self._changed:
            self._seal()
            if not self._changed.wait_for(lambda: self._failure is not None or self._lanes.empty, timeout_s):
                left = self._lanes.open_records
                raise Unavailable(f"{left} records were not answered within {timeout_s:g} s: {otherwise}")
            self._raise_failure()
            self._refusals.raise_first()

    def _begin_or_seal(self, draft: Draft) -> None:
        """Start the batch or, if it is full, seal it. In both cases it has no room left."""
        if self._gathering.since is None:
            self._check()
            self._gathering.begin(self._runtime.clock.monotonic(), self._options.batch_bytes)
            self._changed.notify_all()  # a sending thread must wake when the batch has lingered
        if draft.room_bytes <= 0:
            self._seal()

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self._partition_count:
            raise Invalid(
                f"{self.topic} has no partition {partition}: it has 0 to {self._partition_count - 1}", field="partition"
            )

    def _check(self) -> None:
        self._raise_failure()
        if self._closing:
            raise Invalid("the producer is closed")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _delivered(self, parcel: Parcel, part: Part, told: Delivered) -> None:
        """Runs in a sending thread. Callbacks of futures run here too."""
        if self._futures:
            with self._lock:
                outcomes = self._futures.take_delivered(parcel, part, told)
            for future, outcome in outcomes:
                future.set_result(outcome)
        if self._on_delivery is not None:
            self._on_delivery(told)

    def _refused(self, refused: Refused) -> None:
        with self._changed:
            if self._on_refusal is None or self._futures.has(refused.number):
                self._refusals.keep(refused)
                return
        self._on_refusal(refused)

    def _seal(self, *, wait: bool = True) -> None:
        """Queue the batch and begin another."""
        first = self._gathering.first_number
        if first is None:
            return
        try:
            shares = self._gathering.seal()
        except Exception as error:  # of the program's own partitioner
            self._lanes.lose(first)
            self._fail(error, None)
        else:
            self._queue(shares, wait=wait)

    def _queue(self, shares: Sequence[Share], *, wait: bool = True) -> None:
        """Put a batch into its lanes. A sending thread does not wait for room, because it makes the room itself."""
        for share in shares:
            if wait:
                self._await_room()
            self._lanes.put(share)
        self._changed.notify_all()

    def _await_room(self) -> None:
        """If the buffer is full, wait until half of it is free. Waking at each answer would cost more."""
        if self._lanes.bytes >= self._options.buffer_bytes:
            half = self._options.buffer_bytes // 2
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure is not None or self._closing or self._lanes.bytes <= half)
        self._check()

    def _send_on(self) -> None:
        """Run a sending thread: deliver parcel after parcel, until the producer stops."""
        while (parcel := self._await_parcel()) is not None:
            refused = 0
            try:
                refused = self._delivery.deliver(parcel)
            except Exception as error:  # also a bug in `on_delivery`: the caller must see it
                self._fail(error, parcel)
            with self._changed:
                self._lanes.done(parcel, refused)
                self._end_futures_if_failed()
                self._changed.notify_all()

    def _await_parcel(self) -> Parcel | None:
        """Wait for the next request to send; None when the producer stops."""
        with self._changed:
            while not self._closing:
                linger_left_s = self._linger_left_s()
                if linger_left_s is not None and linger_left_s <= 0:
                    self._seal(wait=False)
                parcel = self._lanes.take()
                if parcel is not None:
                    return parcel
                self._changed.wait(self._linger_left_s())
            return None

    def _linger_left_s(self) -> float | None:
        """How long the batch may still wait; None if it is empty."""
        if self._gathering.since is None:
            return None
        return self._gathering.since + self._options.linger_ms / 1_000 - self._runtime.clock.monotonic()

    def _fail(self, error: Exception, parcel: Parcel | None) -> None:
        with self._changed:
            first = None if parcel is None else parcel.first_number
            for lost in (first, self._gathering.first_number):
                if lost is not None:
                    self._lanes.lose(lost)
            dropped = self._gathering.drop() + self._lanes.drop_waiting()
            if self._failure is None:
                self._failure = error
                error.add_note(f"the producer of {self.topic!r} stopped; {dropped} records behind it were not sent")
            self._end_futures_if_failed()
            self._changed.notify_all()

    def _end_futures_if_failed(self) -> None:
        """Requests that are under way still complete the futures of their records."""
        if self._failure is not None and self._lanes.empty:
            self._futures.fail(self._failure)

    def _stop(self, *, abandon: bool = False) -> None:
        """End the threads. `abandon`: break off requests under way, whose outcome stays unknown."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if abandon:
            self._connection.close()
        give_up_at = self._runtime.clock.monotonic() + ABANDON_S
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - self._runtime.clock.monotonic()) if abandon else None)
        self._connection.close()
        with self._lock:
            self._futures.fail(Unavailable("the producer was closed: it is unknown whether the record is in the log"))
