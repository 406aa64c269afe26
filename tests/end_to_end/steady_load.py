"""A producer that continues while its broker fails, and a check that no record was lost or doubled.

Each record of partition *p* holds ``p:n`` with *n* counting from 0. So the log is correct exactly if partition *p*
holds ``p:0``, ``p:1``, ... in this order, at least up to the last acknowledged record and at most up to the last one
sent.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tests.end_to_end.broker_process import wait_until

from tidelog.client import Consumer, Delivered, Producer, ProducerOptions
from tidelog.storage.errors import TidelogError

PADDING = b"." * 100
ROUND_RECORDS = 30
PAUSE_S = 0.02
"""The pause between two rounds: a load of thousands of records a second leaves time for what is tested."""
OPTIONS = ProducerOptions(
    batch_bytes=16 << 10, buffer_bytes=128 << 10, linger_ms=2, delivery_timeout_s=90.0, close_timeout_s=90.0
)
"""A small buffer: the load is no faster than the broker acknowledges, and memory stays small."""


class SteadyLoad:
    """Sends from `__enter__` until `finish`, in its own thread. `failure`: the error that ended it early."""

    def __init__(self, broker: str, topic: str, options: ProducerOptions = OPTIONS) -> None:
        self._producer = Producer(broker, topic, options, on_delivery=self._delivered)
        self.partitions = self._producer.partition_count
        self.sent = [0] * self.partitions
        self._acknowledged = [0] * self.partitions
        self._offsets_wrong: list[Delivered] = []
        self.failure: TidelogError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send_on, name="steady-load", daemon=True)

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far, in all partitions."""
        return sum(self._acknowledged)

    def await_acknowledged(self, records: int, timeout_s: float = 60.0) -> None:
        """Wait until `count` more records are acknowledged."""
        wanted = self.acknowledged + records
        wait_until(lambda: self.acknowledged >= wanted or self.failure is not None, timeout_s, self._state)
        assert self.failure is None, self._state()

    def finish(self) -> None:
        """Stop sending, and return when everything sent is acknowledged, or the load has failed."""
        self._stopping.set()
        self._thread.join()
        try:
            self._producer.close()
        except TidelogError as error:
            self.failure = error

    def assert_whole(self, broker: str, topic: str) -> None:
        """Check that the log at `broker` holds every acknowledged record, once, in order, at its acknowledged
        offset."""
        assert not self._offsets_wrong
        for partition in range(self.partitions):
            found = values_of(broker, topic, partition)
            acknowledged, sent = self._acknowledged[partition], self.sent[partition]
            assert acknowledged <= len(found) <= sent
            assert found == [_value(partition, n) for n in range(len(found))]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.finish()

    def _send_on(self) -> None:
        try:
            while not self._stopping.is_set():
                for partition in range(self.partitions):
                    for _ in range(ROUND_RECORDS):
                        self._producer.send(_value(partition, self.sent[partition]), partition=partition)
                        self.sent[partition] += 1
                self._stopping.wait(PAUSE_S)
        except TidelogError as error:
            self.failure = error

    def _delivered(self, delivered: Delivered) -> None:
        if delivered.base_offset != delivered.first_sequence:  # there is no other writer: offsets are sequences
            self._offsets_wrong.append(delivered)
        self._acknowledged[delivered.partition] = delivered.first_sequence + delivered.count

    def _state(self) -> str:
        return f"sent {self.sent}, acknowledged {self._acknowledged}, failure {self.failure!r}"


def values_of(broker: str, topic: str, partition: int) -> list[bytes | None]:
    """Every value of a partition, in order."""
    with Consumer(broker, topic, partitions=[partition], start="start") as consumer:
        return [record.value for record in consumer.records(follow=False)]


def _value(partition: int, n: int) -> bytes:
    return b"%d:%d %s" % (partition, n, PADDING)
