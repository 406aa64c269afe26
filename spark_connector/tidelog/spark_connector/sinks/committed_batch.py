"""What a batch of a sink appends: parts of staged objects, in an order that is fixed once, with their sequences.

The mark `committed` of a batch holds a `CommittedBatch`. All that is published follows from it: the producer's id, and
the sequences of each part. So publishing twice, by any number of processes, adds nothing the second time.

The sequences of a partition continue from batch to batch, so brokers remember one producer per partition, however many
batches a stream has. `next_sequences` carries them on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tidelog.storage.errors import Corrupt
from tidelog.storage.json_checksum import check_checksum, with_checksum

FORMAT_VERSION = 1

Sequences: TypeAlias = Mapping[str, Mapping[int, int]]
"""The next sequence by topic and partition. A partition that is missing is at 0."""


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """`records` records for a partition: `length` bytes from `start` of the object `name`, with that CRC32."""

    topic: str
    partition: int
    name: str
    start: int
    length: int
    checksum: int
    records: int


class CommittedBatch(msgspec.Struct, frozen=True):
    """`producer`: the id under which all batches since the sink's first one are appended. `next_sequences`: those
    behind this batch."""

    format_version: int
    batch: int
    producer: str
    parts: tuple[StagedPart, ...]
    next_sequences: dict[str, dict[int, int]]


@dataclass(frozen=True)
class PartSend:
    """A produce: `part` at `first_sequence`."""

    part: StagedPart
    first_sequence: int


def commit_after(producer: str, before: Sequences, batch: int, parts: Sequence[StagedPart]) -> CommittedBatch:
    """The batch that appends `parts` in their order behind the sequences `before`."""
    after = {topic: dict(partitions) for topic, partitions in before.items()}
    for part in parts:
        of_topic = after.setdefault(part.topic, {})
        of_topic[part.partition] = of_topic.get(part.partition, 0) + part.records
    return CommittedBatch(FORMAT_VERSION, batch, producer, tuple(parts), after)


def sends_of(batch: CommittedBatch) -> list[list[PartSend]]:
    """The produces of each partition, in order. Those of different partitions do not depend on each other."""
    lanes: dict[tuple[str, int], list[StagedPart]] = {}
    for part in batch.parts:
        lanes.setdefault((part.topic, part.partition), []).append(part)
    return [_lane(batch.next_sequences[topic][partition], parts) for (topic, partition), parts in lanes.items()]


def _lane(next_sequence: int, parts: Sequence[StagedPart]) -> list[PartSend]:
    sequence = next_sequence - sum(part.records for part in parts)
    sends = []
    for part in parts:
        sends.append(PartSend(part, sequence))
        sequence += part.records
    return sends


def encode_batch(batch: CommittedBatch) -> bytes:
    return with_checksum(msgspec.json.encode(batch))


def decode_batch(name: str, data: bytes) -> CommittedBatch:
    """Raises `Corrupt`, which names the object `name`."""
    check_checksum(name, data)
    try:
        batch = msgspec.json.decode(data, type=CommittedBatch)
    except msgspec.MsgspecError as error:
        raise Corrupt(name, f"is not a committed batch: {error}") from None
    if batch.format_version != FORMAT_VERSION:
        raise Corrupt(name, f"has format version {batch.format_version}; this Tidelog knows {FORMAT_VERSION}")
    return batch
