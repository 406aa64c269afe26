"""Proves that an archive was not altered since its heads were noted: `tidelog bucket attest`.

    attestation = BucketAttestation(store)
    async for head in attestation.partitions():             # a PartitionHead, or an Unproved
        ...
    attestation.digest                                      # one hash for the whole bucket

The head of a partition is a hash over its whole history (`manifest_chain`); the digest is a hash over all heads. Given
the heads of an earlier run, the history of each partition is replayed from version 0 on and every hash is computed
again (`manifest_replay`): the earlier head must be among them. The history names segments by the sha256 of their bytes.
``tidelog bucket verify --deep`` compares these with the stored bytes; `attest` does not.

Workers may run at the same time: a run ignores versions that are appended after it read the newest one.

An attestation is stored as JSON lines: one line per partition, then one with their number and digest, so that a file
that lost lines is not taken for one of a smaller bucket. Keep it where the owner of the bucket cannot change it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import msgspec

from tidelog.storage.bucket.listing import archived_partitions
from tidelog.storage.bucket.manifest_replay import replay_history
from tidelog.storage.errors import Corrupt, Invalid, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_chain import chain_fault
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.upkeep.task import Place

PARTITIONS_AT_ONCE = 8


@dataclass(frozen=True, order=True)
class PartitionHead:
    """A partition at one version, and the hash of its history up to there."""

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
    """A partition whose history cannot be proved. `fault` is a clause that says why."""

    topic: str
    topic_id: str
    partition: int
    fault: str


class BucketAttestation:
    """One run. `earlier` are the heads of an earlier run; without them only the newest version of each partition is
    read."""

    def __init__(self, store: ObjectStore, earlier: Iterable[PartitionHead] | None = None) -> None:
        self._store = store
        self._earlier = None if earlier is None else {head.place: head for head in earlier}
        self._heads: list[PartitionHead] = []

    @property
    def digest(self) -> str:
        """The digest of the partitions attested so far."""
        return digest_of(self._heads)

    async def partitions(self) -> AsyncIterator[PartitionHead | Unproved]:
        """Every partition that is archived, or was in the earlier run, by topic. Raises `Unavailable`, `Denied`."""
        missing = dict(self._earlier or {})
        places = archived_partitions(self._store)
        async for place, answer in in_order(places, self._attest, at_once=PARTITIONS_AT_ONCE):
            missing.pop(place, None)
            if isinstance(answer, PartitionHead):
                self._heads.append(answer)
            yield answer
        for place in missing:
            yield _unproved(place, "has no manifest any more: its topic was deleted, or its manifests were")

    async def _attest(self, place: Place) -> PartitionHead | Unproved:
        try:
            newest = await ManifestLog(self._store, place.topic, place.topic_partition).latest()
            if self._earlier is not None:
                earlier = self._earlier.get(place)
                heads = {earlier.version: earlier.head} if earlier else None
                await replay_history(self._store, place, newest, heads)
            elif fault := chain_fault(newest):
                return _unproved(place, fault)
        except Corrupt as error:
            return _unproved(place, str(error))
        except NotFound:
            return _unproved(place, "was deleted meanwhile")
        return _head_of(place, newest)


def _head_of(place: Place, manifest: Manifest) -> PartitionHead:
    where = place.topic_partition
    offsets = (manifest.log_start_offset, manifest.cold_end)
    counts = (*offsets, len(manifest.segments))
    return PartitionHead(place.topic, where.topic_id, where.partition, manifest.version, *counts, manifest.head)


def _unproved(place: Place, fault: str) -> Unproved:
    return Unproved(place.topic, place.topic_partition.topic_id, place.topic_partition.partition, fault)


@dataclass(frozen=True)
class AttestationEnd:
    """The last line of an attestation."""

    partitions: int
    digest: str


def digest_of(heads: Iterable[PartitionHead]) -> str:
    """One hash of all `heads`, independent of their order."""
    return hashlib.sha256(b"\n".join(msgspec.json.encode(head) for head in sorted(heads))).hexdigest()


def attestation_lines(heads: Iterable[PartitionHead]) -> Iterable[bytes]:
    """The lines of an attestation: one per partition, then an `AttestationEnd`."""
    kept = sorted(heads)
    yield from (msgspec.json.encode(head) for head in kept)
    yield msgspec.json.encode(AttestationEnd(len(kept), digest_of(kept)))


def read_attestation(text: bytes) -> tuple[PartitionHead, ...]:
    """The heads that `attestation_lines` wrote. Raises `Invalid` if lines are missing or altered."""
    lines = text.splitlines()
    try:
        heads = tuple(msgspec.json.decode(line, type=PartitionHead) for line in lines[:-1])
        end = msgspec.json.decode(lines[-1] if lines else b"", type=AttestationEnd)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"this is not the output of `tidelog bucket attest --json`: {error}") from error
    if end != AttestationEnd(len(heads), digest_of(heads)):
        raise Invalid("the attestation does not match its digest: lines were lost or altered")
    return heads
