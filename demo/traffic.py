"""Sends the records of the demo through a crash of the broker, and reads them back.

The broker is killed while some requests are in progress and others wait. The idempotent producer of `tidelog.client`
sends them again to the new broker, with the same sequences, so that each record is in the log once (inv. 7).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass

import pyarrow as pa

from demo.agreement import Column, Fingerprint
from demo.broker_process import BrokerProcess
from demo.narrator import Narrator, Rates
from demo.source import SourceBatch
from tidelog.client import Consumer, Delivered, Producer, ProducerOptions
from tidelog.storage.errors import Corrupt

MIB = 1 << 20
OFFSET_BYTES = 4  # Arrow keeps them for each value, besides its bytes
OPTIONS = ProducerOptions(request_bytes=2 * MIB, buffer_bytes=32 * MIB)
POLL_SECONDS = 10.0


@dataclass(frozen=True)
class Produced:
    """What was acknowledged, and how long the broker was away (0: it was not killed)."""

    records: int = 0
    value_bytes: int = 0
    seconds: float = 0.0
    outage_seconds: float = 0.0
    killed_after_records: int = 0

    def __add__(self, other: Produced) -> Produced:
        return Produced(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


class Crash:
    """Kills the broker with kill -9 and starts a new one, once, in its own thread while the producer continues. It
    begins when `due_after` records are acknowledged, and calls `before` first."""

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
        """Start it. Only the first call has an effect."""
        with self._lock:
            if not self.after_records:
                self.after_records = records
                self._thread.start()

    def finish(self) -> None:
        """Wait until the new broker is ready. Raises the error of its start."""
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
        except Exception as error:  # `finish` raises it in the thread that waits
            self._failure = error


def produce(
    batches: Iterable[SourceBatch], topic: str, broker: BrokerProcess, crash: Crash | None, narrator: Narrator
) -> Produced:
    """Send all batches, with a crash in between. Returns when every record is acknowledged."""
    records = size = 0

    def count(delivered: Delivered) -> None:
        rates.add(delivered.count, delivered.count * size // records)
        if crash is not None and rates.records >= crash.due_after:
            crash.begin(rates.records)

    with Rates(narrator, "acknowledged") as rates:
        with Producer(broker.url, topic, OPTIONS, on_delivery=count) as producer:
            for batch in batches:
                records += len(batch.values)
                size += batch.values.nbytes - OFFSET_BYTES * len(batch.values)
                producer.send_batch(_table(batch))
            producer.flush()
        if crash is not None:
            crash.finish()
        seconds = rates.seconds
    if crash is None:
        return Produced(records, size, seconds)
    return Produced(records, size, seconds, crash.outage_seconds, crash.after_records)


def read_back(url: str, topic: str, partitions: int, records: int, narrator: Narrator) -> Sequence[Fingerprint]:
    """A fingerprint of each partition, read over HTTP from the first record to the last. Ends early if the topic has
    fewer than `records`; the fingerprints then differ. Raises `Corrupt` if offsets are not consecutive."""
    prints = [Fingerprint() for _ in range(partitions)]
    with Rates(narrator, "fetched") as rates, Consumer(url, topic, start="earliest") as consumer:
        while rates.records < records:
            batch = consumer.poll(timeout_s=POLL_SECONDS)
            if batch is None:
                break
            before = prints[batch.partition].value_bytes
            _add(prints[batch.partition], batch.partition, batch.records)
            rates.add(batch.records.num_rows, prints[batch.partition].value_bytes - before)
    return prints


def _add(fingerprint: Fingerprint, partition: int, records: pa.Table) -> None:
    offset = fingerprint.records
    for batch in records.to_batches():
        given: Column = batch.column("offset")
        if len(given) and (given[0].as_py(), given[-1].as_py()) != (offset, offset + len(given) - 1):
            raise Corrupt(f"partition {partition}", f"offset {given[0].as_py()} came where {offset} was next")
        fingerprint.update(batch.column("key"), batch.column("value"))
        offset += len(given)


def _table(batch: SourceBatch) -> pa.Table:
    columns: dict[str, object] = {"value": batch.values}
    if batch.keys is not None:
        columns["key"] = batch.keys
    if batch.timestamps is not None:
        columns["timestamp"] = batch.timestamps
    if batch.partition is not None:
        columns["partition"] = pa.repeat(pa.scalar(batch.partition, pa.int32()), len(batch.values))
    return pa.table(columns)
