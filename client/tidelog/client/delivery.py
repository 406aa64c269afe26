"""Sends the requests of a producer and reports their answers.

`Delivery` encodes a parcel's columns as an Arrow body, sends it, and passes the broker's answer to `on_delivery`.

If the broker refuses a request because of a record, the request is sent again without that record (`refusals`). The log
took nothing of the refused request, so its sequences go to the remaining records and have no gap (inv. 7). Before that,
the log is asked whether it holds the request already: an earlier attempt may have succeeded and lost its answer, before
a setting was changed that now refuses it.

A producer numbers its records in each partition by a sequence. The broker remembers the last sequences of each
producer, so it knows how many records of the producer the log holds, including those whose answer was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidelog.client.admin import OFFSET_MAX
from tidelog.client.arrow_stream import ARROW, Compression, arrow_body
from tidelog.client.connection import JSON, Connection, Request, decoded
from tidelog.client.consumed import TopicPartition
from tidelog.client.lanes import Parcel
from tidelog.client.leaders import Leaders
from tidelog.client.refusals import REFUSALS_MAX, Part, Refused, blames_a_record, refused_and_rest, refused_of, whole
from tidelog.client.request_paths import partition_path
from tidelog.storage.errors import Invalid, OffsetConflict, SequenceConflict
from tidelog.wire.records import ProduceAnswer

_UNUSED_SEQUENCE = 1 << 61
_ANY_RECORD = b'{"records":[{"key":"","value":null}]}'
"""It has a key, so that a compacted topic does not refuse it."""


@dataclass(frozen=True)
class ProducerIdentity:
    """Identifies a producer. With a sequence, the log takes a request once, however often it is sent (inv. 7)."""

    producer_id: str
    producer_epoch: int

    def headers(self, first_sequence: int) -> Mapping[str, str]:
        """The headers of a produce whose first record has `first_sequence`."""
        return {
            "tidelog-producer-id": self.producer_id,
            "tidelog-producer-epoch": str(self.producer_epoch),
            "tidelog-sequence": str(first_sequence),
        }


@dataclass(frozen=True)
class Delivered:
    """Records that the broker has acknowledged: `count` offsets from `base_offset` and sequences from `first_sequence`.
    `base_offset` is None with acks=0, and if only a later request showed that the log holds the records. `duplicate`:
    an earlier attempt had appended them, and its answer was lost."""

    topic: str
    partition: int
    base_offset: int | None
    count: int
    first_sequence: int
    duplicate: bool = False


@dataclass(frozen=True)
class Delivery:
    """Delivers parcels to one topic, from any thread: to the leader of their partition, or to any broker. `deadline_s`
    bounds a request with its retries. Without `identity`, a request is sent only once."""

    connection: Connection
    leaders: Leaders
    deadline_s: float
    topic: str
    acks: str
    identity: ProducerIdentity | None
    on_delivery: Callable[[Parcel, Part, Delivered], None]
    on_refusal: Callable[[Refused], None]
    compression: Compression

    def deliver(self, parcel: Parcel) -> int:
        """Send `parcel` until it is acknowledged, and return how many records were refused and left out. Raises the
        error of a request that is refused as a whole, and `Unavailable` after the deadline."""
        waiting, sequence, refusals, refused = deque((whole(parcel),)), parcel.first_sequence, 0, 0
        while waiting:
            part = waiting.popleft()
            try:
                self._send(parcel, part, sequence)
            except Invalid as error:
                if not blames_a_record(error):
                    raise
                if not self._was_taken(parcel, part, sequence):
                    refusals += 1
                    culprits, rest = refused_and_rest(part, error) if refusals <= REFUSALS_MAX else (part, ())
                    refused += self._refuse(parcel, culprits, error)
                    waiting.extendleft(reversed(rest))
                    continue
            sequence += len(part.rows)
        return refused

    def _refuse(self, parcel: Parcel, culprits: Part | None, error: Invalid) -> int:
        if culprits is None:
            return 0
        for refused in refused_of(self.topic, parcel, culprits, error):
            self.on_refusal(refused)
        return len(culprits.rows)

    def _was_taken(self, parcel: Parcel, part: Part, sequence: int) -> bool:
        """Whether the log holds this part from an earlier attempt, although it is refused now. Then it is reported."""
        if self.identity is None:
            return False  # without a sequence, a request is not sent twice
        count = len(part.rows)
        if next_sequence(self.connection, self.topic, parcel.partition, self.identity) != sequence + count:
            return False
        self._report(parcel, part, None, sequence, duplicate=True)
        return True

    def _send(self, parcel: Parcel, part: Part, sequence: int) -> None:
        if self.leaders.due():
            self.leaders.read((self.topic,))
        leader = self.leaders.of(TopicPartition(self.topic, parcel.partition))
        request = self._request(parcel.partition, part.records, sequence)
        answer = self.leaders.call(leader, request, deadline_s=self.deadline_s)
        (appended,) = decoded(answer, ProduceAnswer).partitions
        self._report(parcel, part, appended.base_offset, sequence, duplicate=appended.duplicate is True)

    def _report(self, parcel: Parcel, part: Part, base_offset: int | None, sequence: int, *, duplicate: bool) -> None:
        count = len(part.rows)
        told = Delivered(self.topic, parcel.partition, base_offset, count, sequence, duplicate)
        self.on_delivery(parcel, part, told)

    def _request(self, partition: int, records: pa.Table, sequence: int) -> Request:
        return Request(
            "POST",
            f"{partition_path(self.topic, partition)}/records",
            query={"acks": self.acks},
            headers={"content-type": ARROW, **({} if self.identity is None else self.identity.headers(sequence))},
            body=arrow_body(records, self.compression),
            repeatable=self.identity is not None,
        )


def next_sequence(connection: Connection, topic: str, partition: int, identity: ProducerIdentity) -> int | None:
    """How many records of `identity` the partition holds, without refused ones; None if the partition does not know
    `identity`. It asks by an append that cannot succeed, because no log has the offset that the append expects."""
    request = Request(
        "POST",
        f"{partition_path(topic, partition)}/records",
        query={"expected_offset": OFFSET_MAX},
        headers={"content-type": JSON, **identity.headers(_UNUSED_SEQUENCE)},
        body=[memoryview(_ANY_RECORD)],
    )
    try:
        connection.call(request)
    except SequenceConflict as known:
        return known.expected_sequence
    except OffsetConflict:
        return None
    raise AssertionError("no log ends at the highest possible offset")


def held_sequences(
    connection: Connection, topic: str, partition_count: int, identity: ProducerIdentity
) -> Mapping[int, int]:
    """`next_sequence` of each partition; 0 if the partition does not know `identity`."""
    return {
        partition: next_sequence(connection, topic, partition, identity) or 0 for partition in range(partition_count)
    }
