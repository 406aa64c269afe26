"""Copies the records of a topic, up to its ends at the start, with checkpoints from which a later run continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.client import Batch, Consumer, ConsumerOptions, Producer, Refused
from tidelog.client.broker_access import Broker
from tidelog.client.consumed import TopicPartition
from tidelog.services.cli.console import complain
from tidelog.services.cli.copy_state import CopyState
from tidelog.services.cli.stopping import StopBetweenSteps
from tidelog.storage.errors import Invalid, OutOfRange
from tidelog.storage.partitioner import NO_PARTITION, partitions_of
from tidelog.storage.runtime import SystemClock

FETCH_BYTES = 8 << 20
CHECKPOINT_EVERY_S = 5.0
COLUMNS = ("key", "value", "timestamp", "headers")

Partitions = npt.NDArray[np.int32]


@dataclass
class CopyRun:
    """One run. `held`: how many of the next records each partition of the target holds already. `on_checkpoint` gets
    each new state; `on_copied` the number of records that were read."""

    source: Broker
    topic: str
    producer: Producer
    state: CopyState
    held: dict[int, int]
    on_checkpoint: Callable[[CopyState], None]
    on_copied: Callable[[int], None]
    refused: Refused | None = None
    records: int = 0
    _positions: dict[int, int] = field(init=False)
    _sequences: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._positions = dict(self.state.positions)
        self._sequences = dict(self.state.sequences)
        self._clock = SystemClock()
        self._saved_s = self._clock.monotonic()

    def run(self) -> None:
        """Copy everything. However it ends, the last checkpoint holds. Raises `Invalid` for a refused record, and
        `KeyboardInterrupt` after a checkpoint if it was asked to stop."""
        self.on_checkpoint(msgspec.structs.replace(self.state, settled=False))
        with StopBetweenSteps() as stopping:
            for batch in self._batches():
                self._send(batch)
                if stopping.asked:
                    break
                if self._clock.monotonic() - self._saved_s >= CHECKPOINT_EVERY_S:
                    self.checkpoint(settled=False)
            self.checkpoint(settled=True)
            stopping.raise_if_asked()

    def checkpoint(self, *, settled: bool) -> None:
        """Wait until all that was sent is in the target, then report the state. Raises `Invalid` for a refused record,
        `Unavailable` if the target does not answer."""
        self.producer.flush()
        if self.refused is not None:
            self.on_checkpoint(msgspec.structs.replace(self.state, settled=False, exact=False))
            raise Invalid(
                f"the target refused a record: {self.refused.error}. Records after it may be in the target. Change the "
                "target, for example max.message.bytes, then continue with --allow-repeats",
                field=self.refused.error.field,
            )
        self.state = msgspec.structs.replace(
            self.state, positions=dict(self._positions), sequences=dict(self._sequences), settled=settled
        )
        self.on_checkpoint(self.state)
        self._saved_s = self._clock.monotonic()

    def _batches(self) -> Iterator[Batch]:
        """Batches of all partitions. With `by-key` one partition of the source after the other, so that the order in
        each partition of the target is always the same."""
        every = sorted(self._positions)
        groups = [every] if self.state.placement == "keep" else [[partition] for partition in every]
        for group in groups:
            options = ConsumerOptions(max_bytes=FETCH_BYTES)
            with Consumer(self.source, self.topic, partitions=group, options=options) as consumer:
                for partition, first in consumer.positions.items():
                    self._begin(consumer, partition, first)
                yield from consumer.batches(follow=False)

    def _begin(self, consumer: Consumer, partition: TopicPartition, first: int) -> None:
        """Continue at the checkpoint. `first` is where the source begins now."""
        position = self._positions[partition.partition]
        if position < first and self.state.sequences and any(self.held.values()):
            raise OutOfRange(
                f"{partition} begins at offset {first} now, and the copy was at {position}: it is unknown "
                "which records are in the target. --allow-repeats continues and may repeat records",
                log_start_offset=first,
                high_watermark=consumer.end_offsets()[partition],
            )
        if position < first:
            complain(f"{partition}: {first - position:,} offsets were deleted before they were copied")
        elif position > first:
            consumer.seek(partition, position)

    def _send(self, batch: Batch) -> None:
        table = batch.records.select(COLUMNS)
        partitions = self._partitions(table, batch.partition)
        if any(self.held.values()):
            rows = self._not_held(partitions)
            table, partitions = table.take(rows), partitions[rows]
        self._put(table, partitions)
        self._positions[batch.partition] = batch.next_offset
        self.records += batch.records.num_rows
        self.on_copied(batch.records.num_rows)

    def _put(self, table: pa.Table, partitions: Partitions) -> None:
        if not table.num_rows:
            return
        found, counts = np.unique(partitions, return_counts=True)
        for partition, count in zip(found.tolist(), counts.tolist(), strict=True):
            self._sequences[partition] = self._sequences.get(partition, 0) + count
        if len(found) == 1:
            self.producer.send_batch(table, partition=int(found[0]))
        else:
            self.producer.send_batch(table.append_column("partition", pa.array(partitions)))

    def _partitions(self, table: pa.Table, source: int) -> Partitions:
        """The partition of the target for each row; a row without a key follows its partition in the source."""
        count = self.producer.partition_count
        if self.state.placement == "keep":
            return np.full(table.num_rows, source, np.int32)
        by_key = partitions_of(table.column("key"), count)
        return np.where(by_key == NO_PARTITION, source % count, by_key).astype(np.int32)

    def _not_held(self, partitions: Partitions) -> npt.NDArray[np.int64]:
        kept = np.ones(len(partitions), bool)
        for partition, held in self.held.items():
            rows = np.flatnonzero(partitions == partition)[:held]
            kept[rows] = False
            self.held[partition] = held - len(rows)
            self._sequences[partition] = self._sequences.get(partition, 0) + len(rows)
        return np.flatnonzero(kept)


def check_fits(placement: str, source: Sequence[object], target: Sequence[object], name: str) -> None:
    """Raises `Invalid` if a partition of the source has none of its number in the target."""
    if placement == "keep" and len(target) < len(source):
        raise Invalid(
            f"{name} has {len(target)} partitions, and the source has {len(source)}: add --partitions by-key, or give "
            f"it more by `tidelog topic alter {name} -p {len(source)}`",
            field="partitions",
        )


def left_of(positions: Mapping[int, int], ends: Mapping[int, int]) -> int:
    """How many offsets are still to be read."""
    return sum(max(0, end - positions.get(partition, 0)) for partition, end in ends.items())
