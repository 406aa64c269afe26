"""Who produces, and how far it has come: the broker's side of exactly-once appends (inv. 7).

A producer numbers its records in each partition by a sequence. The broker remembers the last sequences of each
producer, so it can say how many of a producer's records the log holds, also of those whose answer was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.client.admin import OFFSET_MAX, partition_path
from tidelog.client.connection import JSON, Connection, Request
from tidelog.storage.errors import OffsetConflict, SequenceConflict

_UNUSED_SEQUENCE = 1 << 61
_ANY_RECORD = b'{"records":[{"key":"","value":null}]}'
"""With a key, so that a compacted topic has nothing against it."""


@dataclass(frozen=True)
class ProducerIdentity:
    """Who sends: with a sequence, it makes a retried request append once (inv. 7)."""

    producer_id: str
    producer_epoch: int

    def headers(self, first_sequence: int) -> Mapping[str, str]:
        """The headers of a produce whose first record has `first_sequence`."""
        return {
            "tidelog-producer-id": self.producer_id,
            "tidelog-producer-epoch": str(self.producer_epoch),
            "tidelog-sequence": str(first_sequence),
        }


def next_sequence(connection: Connection, topic: str, partition: int, identity: ProducerIdentity) -> int | None:
    """How many records of `identity` the partition holds (what is refused counts nothing); None if the partition does
    not know it. It asks with an append that cannot succeed: no log has the offset that it expects."""
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
    raise AssertionError("a log has the highest offset there is")


def held_sequences(
    connection: Connection, topic: str, partition_count: int, identity: ProducerIdentity
) -> Mapping[int, int]:
    """`next_sequence` of each partition, 0 where it does not know `identity`."""
    return {
        partition: next_sequence(connection, topic, partition, identity) or 0 for partition in range(partition_count)
    }
