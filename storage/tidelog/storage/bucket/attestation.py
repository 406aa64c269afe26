"""What `tidelog bucket attest` tells of a bucket, and the file in which that is kept for later.

JSON, a line for each partition, and one that says how many there are and the digest of them all, so that a file that
lost a line is not taken for one of a smaller bucket. It proves most where the bucket's owner cannot change it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tidelog.storage.errors import Invalid
from tidelog.storage.layout import TopicPartition
from tidelog.storage.upkeep.task import Place


@dataclass(frozen=True, order=True)
class PartitionHead:
    """What is attested of a partition: where it stood, and the hash of how it came there."""

    topic: str
    topic_id: str
    partition: int
    version: int
    log_start_offset: int
    cold_end: int
    segments: int
    head: str

    @property
    def place(self) -> Place:
        return Place(self.topic, TopicPartition(self.topic_id, self.partition))


@dataclass(frozen=True)
class Unproved:
    """A partition that cannot be shown to be what it was, and why: a clause about it."""

    topic: str
    topic_id: str
    partition: int
    fault: str


def digest_of(heads: Iterable[PartitionHead]) -> str:
    """One hash of all of `heads`, in any order."""
    return hashlib.sha256(b"\n".join(msgspec.json.encode(head) for head in sorted(heads))).hexdigest()


@dataclass(frozen=True)
class AttestationEnd:
    """The last line of an attestation."""

    partitions: int
    digest: str


def attestation_lines(heads: Iterable[PartitionHead]) -> Iterable[bytes]:
    """An attestation as it is written down: JSON, a partition a line, and an `AttestationEnd`."""
    kept = sorted(heads)
    yield from (msgspec.json.encode(head) for head in kept)
    yield msgspec.json.encode(AttestationEnd(len(kept), digest_of(kept)))


def read_attestation(text: bytes) -> tuple[PartitionHead, ...]:
    """What `attestation_lines` wrote. Raises `Invalid` if it is not whole or was altered."""
    lines = text.splitlines()
    try:
        heads = tuple(msgspec.json.decode(line, type=PartitionHead) for line in lines[:-1])
        end = msgspec.json.decode(lines[-1] if lines else b"", type=AttestationEnd)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"this is not what `tidelog bucket attest --json` printed: {error}") from error
    if end != AttestationEnd(len(heads), digest_of(heads)):
        raise Invalid("the attestation does not have its digest: lines were lost or altered")
    return heads
