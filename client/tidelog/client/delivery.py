"""One request of a producer: its columns become an Arrow body, the broker's answer goes to `on_delivery`.

A request that is refused because of a record in it is sent again without that record (`refusals`). Sequences stay
without a gap: the log took nothing of the refused request, so its sequences go to the records that are left (inv. 7).
That is asked of the log first, because an earlier attempt of the same request may have been taken and its answer lost,
before a setting was changed that now refuses the request.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pyarrow as pa

from tidelog.client.admin import partition_path
from tidelog.client.connection import ARROW, Connection, Request
from tidelog.client.lanes import Parcel
from tidelog.client.refusals import REFUSALS_MAX, Part, Refused, blames_a_record, parted, refused_of, whole
from tidelog.client.sequences import ProducerIdentity, next_sequence
from tidelog.storage.errors import Corrupt, Invalid
from tidelog.wire.produce import ProduceAnswer


@dataclass(frozen=True)
class Delivered:
    """Records that the broker has acknowledged: `count` offsets from `base_offset`, their sequences from
    `first_sequence` on. `base_offset` is None with acks=0, and where only a later request showed that they are in the
    log. `duplicate`: an earlier attempt had put them into the log, and its answer was lost."""

    topic: str
    partition: int
    base_offset: int | None
    count: int
    first_sequence: int
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
        on_refusal: Callable[[Refused], None],
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._acks = acks
        self._identity = identity
        self._on_delivery = on_delivery
        self._on_refusal = on_refusal

    def deliver(self, parcel: Parcel) -> int:
        """Send until acknowledged; returns how many records were refused and left out. Raises what the broker refused
        the request itself with, or `Unavailable` after the deadline."""
        waiting, sequence, refusals, refused = deque((whole(parcel),)), parcel.first_sequence, 0, 0
        while waiting:
            part = waiting.popleft()
            try:
                self._send(parcel, part.records, sequence)
            except Invalid as error:
                if not blames_a_record(error):
                    raise
                if not self._was_taken(parcel, part, sequence):
                    refusals += 1
                    culprits, rest = parted(part, error) if refusals <= REFUSALS_MAX else (part, ())
                    refused += self._refuse(parcel, culprits, error)
                    waiting.extendleft(reversed(rest))
                    continue
            sequence += len(part.rows)
        return refused

    def _refuse(self, parcel: Parcel, culprits: Part | None, error: Invalid) -> int:
        if culprits is None:
            return 0
        for refused in refused_of(self._topic, parcel, culprits, error):
            self._on_refusal(refused)
        return len(culprits.rows)

    def _was_taken(self, parcel: Parcel, part: Part, sequence: int) -> bool:
        """Whether an earlier attempt of this part is in the log, although it is refused now; if so, tells it."""
        if self._identity is None:
            return False  # such a request is not sent twice
        count = len(part.rows)
        if next_sequence(self._connection, self._topic, parcel.partition, self._identity) != sequence + count:
            return False
        self._tell(parcel, None, count, sequence, duplicate=True)
        return True

    def _send(self, parcel: Parcel, records: pa.Table, sequence: int) -> None:
        answer = self._connection.call(self._request(parcel.partition, records, sequence))
        try:
            told = msgspec.json.decode(answer.body, type=ProduceAnswer)
            (partition,) = told.partitions
        except (msgspec.MsgspecError, ValueError) as error:
            raise Corrupt("the broker's answer", f"is not what docs/http-api.md says ({error})") from error
        self._tell(parcel, partition.base_offset, partition.count, sequence, duplicate=partition.duplicate is True)

    def _tell(self, parcel: Parcel, base_offset: int | None, count: int, sequence: int, *, duplicate: bool) -> None:
        if self._on_delivery is not None:
            self._on_delivery(Delivered(self._topic, parcel.partition, base_offset, count, sequence, duplicate))

    def _request(self, partition: int, records: pa.Table, sequence: int) -> Request:
        return Request(
            "POST",
            f"{partition_path(self._topic, partition)}/records",
            query={"acks": self._acks},
            headers={"content-type": ARROW, **({} if self._identity is None else self._identity.headers(sequence))},
            body=arrow_body(records),
            repeatable=self._identity is not None,
        )


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
