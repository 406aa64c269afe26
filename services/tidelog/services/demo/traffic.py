"""Producing through a crash: the idempotent producer of `tidelog.client` does not notice more than a pause.

The broker is killed while requests are under way and others wait. The producer sends those again to the broker that
comes back, with their first sequences, so that each record is in the log once (inv. 7).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from tidelog.client import Delivered, Producer, ProducerOptions
from tidelog.services.demo.broker_process import BrokerProcess
from tidelog.services.demo.narrator import Narrator, Rates
from tidelog.services.demo.source import SourceBatch

MIB = 1 << 20
OFFSET_BYTES = 4  # what Arrow keeps for each value beside its bytes
OPTIONS = ProducerOptions(request_bytes=2 * MIB, buffer_bytes=32 * MIB)


@dataclass(frozen=True)
class Produced:
    """What was acknowledged, and how long the broker was away (0: it was not killed)."""

    records: int
    value_bytes: int
    seconds: float
    outage_seconds: float
    killed_after_records: int

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    def __add__(self, other: Produced) -> Produced:
        return Produced(
            self.records + other.records,
            self.value_bytes + other.value_bytes,
            self.seconds + other.seconds,
            self.outage_seconds + other.outage_seconds,
            self.killed_after_records + other.killed_after_records,
        )


class Crash:
    """kill -9 and a new start, once, in a thread of its own while the producer goes on: as soon as `due_after` records
    are acknowledged. `before` is called just before."""

    def __init__(self, broker: BrokerProcess, narrator: Narrator, due_after: int, before: Callable[[], None]) -> None:
        self.due_after = due_after
        self._broker = broker
        self._narrator = narrator
        self._before = before
        self._thread = threading.Thread(target=self._run, name="demo-crash")
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self.outage_seconds = 0.0
        self.after_records = 0

    def begin(self, records: int) -> None:
        """The first call starts it, the others do nothing."""
        with self._lock:
            if not self.after_records:
                self.after_records = records
                self._thread.start()

    def finish(self) -> None:
        """Wait until the broker is back. Raises what its start raised."""
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._before()
            killed = self._narrator.clock.monotonic()
            self._broker.kill()
            self._narrator.warn(f"kill -9 {self._broker.pid} after {self.after_records:,} records")
            self._broker.start()
            self.outage_seconds = self._narrator.clock.monotonic() - killed
            self._narrator.say(
                f"a new broker, process {self._broker.pid}, took the log over after {self.outage_seconds:.1f} s"
            )
        except Exception as error:  # handed to the thread that waits in `finish`
            self._failure = error


class Acknowledged:
    """Counts what the broker has acknowledged, as the producer's threads hear of it; begins the crash on the way."""

    def __init__(self, rates: Rates, crash: Crash | None) -> None:
        self._rates = rates
        self._crash = crash
        self.record_bytes = 0.0  # an average, for the rates alone

    def __call__(self, delivered: Delivered) -> None:
        self._rates.add(delivered.count, int(delivered.count * self.record_bytes))
        if self._crash is not None and self._rates.records >= self._crash.due_after:
            self._crash.begin(self._rates.records)


def produce(
    batches: Iterable[SourceBatch], topic: str, broker: BrokerProcess, crash: Crash | None, narrator: Narrator
) -> Produced:
    """Send all batches, with a crash on the way. Returns once every record is acknowledged."""
    records = size = 0
    with Rates(narrator, "acknowledged", None) as rates:
        acknowledged = Acknowledged(rates, crash)
        with Producer(broker.url, topic, OPTIONS, on_delivery=acknowledged) as producer:
            for batch in batches:
                records += len(batch.values)
                size += batch.values.nbytes - OFFSET_BYTES * len(batch.values)
                acknowledged.record_bytes = size / records
                producer.send_batch(_table(batch))
            producer.flush()
        if crash is not None:
            crash.finish()
        seconds = rates.seconds
    if crash is None:
        return Produced(records, size, seconds, 0.0, 0)
    return Produced(records, size, seconds, crash.outage_seconds, crash.after_records)


def _table(batch: SourceBatch) -> pa.Table:
    columns: dict[str, object] = {"value": batch.values}
    if batch.keys is not None:
        columns["key"] = batch.keys
    if batch.timestamps is not None:
        columns["timestamp"] = batch.timestamps
    if batch.partition is not None:
        columns["partition"] = pa.repeat(pa.scalar(batch.partition, pa.int32()), len(batch.values))
    return pa.table(columns)
