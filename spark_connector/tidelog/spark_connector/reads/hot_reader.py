"""Fetches a slice of a partition's hot tail from the broker, by offset, until its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.slices import HotSlice, report_loss
from tidelog.storage.errors import Corrupt, NotFound, OutOfRange


@dataclass(frozen=True)
class HotReader:
    """Reads slices of one topic. After each slice it checks that the name still belongs to `topic_id`, so that a topic
    that was deleted and created again is an error instead of other records."""

    connection: BrokerConnection
    topic: str
    topic_id: str
    fail_on_data_loss: bool

    def read(self, piece: HotSlice, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of `piece` in the order of offsets. Raises `DataLoss`, `NotFound`, `Unavailable`."""
        position = piece.start
        while position < piece.end:
            try:
                fetched = self.connection.fetch(self.topic, piece.partition, position, piece.end)
            except OutOfRange as error:
                position = self._after_loss(piece, position, error)
                continue
            if fetched.next_offset <= position:
                raise Corrupt(f"{self.topic}-{piece.partition}", f"the broker gave nothing at offset {position}")
            for batch in fetched.batches:
                rows = _before(batch, piece.end)
                if rows.num_rows:
                    yield rows.select(columns)
            position = fetched.next_offset
        self._check_same_topic()

    def _after_loss(self, piece: HotSlice, position: int, error: OutOfRange) -> int:
        """The offset to continue at if the records at `position` are gone and data loss is allowed."""
        low, high = error.log_start_offset, error.high_watermark
        name = f"{self.topic}-{piece.partition}"
        report_loss(name, position, piece.end, low, high, fail=self.fail_on_data_loss)
        return low if low > position else piece.end

    def _check_same_topic(self) -> None:
        if self.connection.topic(self.topic).topic_id != self.topic_id:
            raise NotFound(f"topic {self.topic} was deleted and created again during the read: start the query again")


def _before(batch: pa.RecordBatch, end: int) -> pa.RecordBatch:
    return batch.slice(0, int(np.searchsorted(batch.column("offset").to_numpy(), end)))
