"""One request of a producer: columns to an Arrow body, the body to the broker, its answer to who asked for it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pyarrow as pa

from tidelog.client.admin import partition_path
from tidelog.client.connection import ARROW, Connection, Request
from tidelog.client.lanes import Parcel
from tidelog.storage.errors import Corrupt


@dataclass(frozen=True)
class Delivered:
    """Records that the broker has acknowledged: `count` offsets from `base_offset` (None with acks=0), their sequences
    from `first_sequence` on. `duplicate`: a retry found them in the log."""

    topic: str
    partition: int
    base_offset: int | None
    count: int
    first_sequence: int
    duplicate: bool = False


@dataclass(frozen=True)
class ProducerIdentity:
    """Who sends: with a sequence, it makes a retried request append once (inv. 7)."""

    producer_id: str
    producer_epoch: int


@dataclass(frozen=True)
class _PartitionAnswer:
    partition: int
    base_offset: int | None
    count: int
    timestamp: int | None = None


@dataclass(frozen=True)
class _ProduceAnswer:
    partitions: tuple[_PartitionAnswer, ...]
    duplicate: bool = False


class Delivery:
    """Delivers parcels to one topic, from any thread."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        acks: str,
        identity: ProducerIdentity | None,
        on_delivery: Callable[[Delivered], None] | None,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._acks = acks
        self._identity = identity
        self._on_delivery = on_delivery

    def deliver(self, parcel: Parcel) -> None:
        """Send until acknowledged. Raises what the broker refused it with, or `Unavailable` after the deadline."""
        answer = self._connection.call(self._request(parcel))
        try:
            told = msgspec.json.decode(answer.body, type=_ProduceAnswer)
            (partition,) = told.partitions
        except (msgspec.MsgspecError, ValueError) as error:
            raise Corrupt("the broker's answer", f"is not what docs/http-api.md says ({error})") from error
        if self._on_delivery is not None:
            self._on_delivery(
                Delivered(
                    topic=self._topic,
                    partition=parcel.partition,
                    base_offset=partition.base_offset,
                    count=partition.count,
                    first_sequence=parcel.first_sequence,
                    duplicate=told.duplicate,
                )
            )

    def _request(self, parcel: Parcel) -> Request:
        return Request(
            "POST",
            f"{partition_path(self._topic, parcel.partition)}/records",
            query={"acks": self._acks},
            headers={"content-type": ARROW, **self._sequence(parcel)},
            body=arrow_body(parcel.records),
            repeatable=self._identity is not None,
        )

    def _sequence(self, parcel: Parcel) -> Mapping[str, str]:
        if self._identity is None:
            return {}
        return {
            "tidelog-producer-id": self._identity.producer_id,
            "tidelog-producer-epoch": str(self._identity.producer_epoch),
            "tidelog-sequence": str(parcel.first_sequence),
        }


def arrow_body(records: pa.Table) -> Sequence[memoryview]:
    """`records` as an Arrow IPC stream, whose pieces are the columns' own memory."""
    pieces = _Pieces()
    with pa.ipc.new_stream(cast(Any, pieces), records.schema) as writer:
        writer.write_table(records)
    return pieces.written


class _Pieces(io.RawIOBase):
    """A file that keeps what is written to it without copying it together."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[memoryview] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        if piece.nbytes:
            self.written.append(piece)
        return piece.nbytes
