"""Publishes the staged parts of one partition: produces that name a part of an object instead of carrying records.

Sequences of the producer follow each other without a gap, and nobody else uses its id. So if the leader expects a later
sequence than that of a part, that part is in the log. This way a batch of any number of parts is published again,
although a leader compares only with the last five.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.sinks.committed_batch import CommittedBatch, PartSend
from tidelog.storage.errors import Conflict, Corrupt, NotFound, SequenceConflict
from tidelog.storage.runtime import Clock
from tidelog.wire import headers
from tidelog.wire.paths import partition_target
from tidelog.wire.staging import STAGED_RECORDS_MEDIA, StagedRecords

ATTEMPTS = 12
"""Tries of a call, within a minute: a broker may restart meanwhile, or a shard may move."""

Connect: TypeAlias = Callable[[], BrokerConnection]
"""Opens a connection to the broker."""


class PartPublisher:
    """Publishes parts of `sink`, each lane on a connection of its own. Lanes may be published at the same time."""

    def __init__(self, connect: Connect, sink: str, clock: Clock) -> None:
        self._connect = connect
        self._sink = sink
        self._clock = clock

    def publish(self, batch: CommittedBatch, lane: Sequence[PartSend], began_s: float) -> None:
        """Return when all parts of `lane` are in the log once. Raises `Conflict`, `NotFound`, `Unavailable`, `Corrupt`;
        some of the parts may be in the log then."""
        with self._connect() as connection:
            for send in lane:
                self._publish_one(connection, batch, send, began_s)

    def _publish_one(self, connection: BrokerConnection, batch: CommittedBatch, send: PartSend, began_s: float) -> None:
        part = send.part
        body = msgspec.json.encode(self._records(batch.batch, send, began_s))
        given = {
            "Content-Type": STAGED_RECORDS_MEDIA,
            headers.PRODUCER_ID: batch.producer,
            headers.PRODUCER_EPOCH: "0",
            headers.SEQUENCE: str(send.first_sequence),
        }
        try:
            connection.post(partition_target(part.topic, part.partition, "records", {}), body, given)
        except SequenceConflict as conflict:
            _check_in_log(batch, send, conflict)
        except NotFound as error:
            raise NotFound(f"batch {batch.batch} of sink {self._sink} cannot be published whole: {error}") from error
        except Conflict as conflict:
            if type(conflict) is not Conflict:
                raise
            raise _forgotten(self._sink, batch, conflict) from conflict

    def _records(self, batch: int, send: PartSend, began_s: float) -> StagedRecords:
        part, age_s = send.part, self._clock.monotonic() - began_s
        return StagedRecords(
            self._sink,
            batch,
            part.name,
            part.start,
            part.length,
            part.checksum,
            part.records,
            age_ms=max(0, round(age_s * 1000)),
        )


def _check_in_log(batch: CommittedBatch, send: PartSend, conflict: SequenceConflict) -> None:
    """Raises `Corrupt` unless the whole part is in the log."""
    expected, last = conflict.expected_sequence, send.first_sequence + send.part.records
    if expected < last:
        place = f"{send.part.topic}-{send.part.partition}"
        raise Corrupt(
            f"batch {batch.batch} of producer {batch.producer}",
            f"has sequences {send.first_sequence} to {last} for {place}, but its leader expects {expected}: the topic "
            "or the bucket was restored to an older state",
        ) from conflict


def _forgotten(sink: str, batch: CommittedBatch, conflict: Conflict) -> Conflict:
    return Conflict(
        f"batch {batch.batch} of sink {sink} was committed before, and may be in the log in part: {conflict}. Compare "
        "the topic with the batch. Then continue under another name: set the options queryId (a new one) and "
        f"firstBatch={batch.batch} to write this batch again, or remove the batch from the stream's source"
    )
