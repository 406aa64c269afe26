"""Proves that the archive of topics was not altered since its heads were noted: `tidelog bucket attest`.

    attestation = BucketAttestation(store, runtime, topics=["orders"])
    async for head in attestation.heads():                  # a TopicHead, or an Unproved
        ...
    attestation.digest                                      # one hash of all these heads

The archive of a topic is part of the manifest of each shard that has its partitions. The head of a shard is a hash over
the whole history of that manifest (`shard_chain`). Given the heads of an earlier run, the history of each shard is
replayed from version 0 on, every hash is computed again, and the earlier heads must be among them. The steps of the
attested topics must lead to the segments that the newest version lists (`replay`). The steps of other topics
count with their digests only: an attestation of a topic holds whatever happens to the others.

The history names segments by the sha256 of their bytes. ``tidelog bucket verify --deep`` compares these with the stored
bytes; `attest` does not.

Workers may run at the same time: a run ignores versions that are appended after it read the newest one.

An attestation is stored as JSON lines: one line per topic and shard, then one with their number and digest, so that a
file that lost lines is not taken for one of fewer topics. Keep it where the owner of the bucket cannot change it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from tidelog.storage.bucket.finding import UNREADABLE
from tidelog.storage.bucket.listing import shards_in
from tidelog.storage.bucket.replay import Replay, links
from tidelog.storage.bucket.shard_look import ShardLook
from tidelog.storage.errors import Conflict, Corrupt, Invalid
from tidelog.storage.in_flight import in_order
from tidelog.storage.manifests.shard_history import ShardHistory
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

SHARDS_AT_ONCE = 4
ATTESTATION_FORMAT_VERSION = 2
"""Version 1 had a line per partition, of whose manifests each had a chain of its own."""


@dataclass(frozen=True, order=True)
class TopicHead:
    """A topic in a shard at one version of the shard's manifest, and the hash of the history up to there."""

    topic: str
    topic_id: str
    shard: int
    version: int
    segments: int
    records: int
    head: str

    @property
    def place(self) -> tuple[str, int]:
        return self.topic_id, self.shard


@dataclass(frozen=True)
class Unproved:
    """A topic in a shard whose history cannot be proved. `fault` is a clause that says why."""

    topic: str
    topic_id: str
    shard: int
    fault: str


class BucketAttestation:
    """One run. `topics`: the names of the topics to attest; empty for all. `earlier` are the heads of an earlier run;
    without them only the newest version of each shard is read."""

    def __init__(
        self,
        store: ObjectStore,
        runtime: Runtime,
        earlier: Iterable[TopicHead] | None = None,
        *,
        topics: Collection[str] = (),
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._topics = frozenset(topics)
        self._earlier: dict[int, list[TopicHead]] | None = None if earlier is None else defaultdict(list)
        for head in earlier or ():
            if self._wants(head.topic) and self._earlier is not None:
                self._earlier[head.shard].append(head)
        self._heads: list[TopicHead] = []

    @property
    def digest(self) -> str:
        """The digest of the heads so far."""
        return digest_of(self._heads)

    async def heads(self) -> AsyncIterator[TopicHead | Unproved]:
        """Each of the topics in each shard that archives it, or did in the earlier run, by shard. Raises
        `Unavailable`, `Denied`."""
        shards = {*await shards_in(self._store), *(self._earlier or {})}
        async for _, answers in in_order(sorted(shards), self._attest, at_once=SHARDS_AT_ONCE):
            for answer in answers:
                if isinstance(answer, TopicHead):
                    self._heads.append(answer)
                yield answer

    def _wants(self, topic: str) -> bool:
        return not self._topics or topic in self._topics

    async def _attest(self, shard: int) -> list[TopicHead | Unproved]:
        look = ShardLook(self._store, shard, self._runtime)
        newest = await look.refresh()
        earlier = (self._earlier or {}).get(shard, [])
        if newest is None:
            assert look.fault is not None
            return [_unproved(head, f"{look.fault.key}: {look.fault.text}") for head in earlier] or [
                Unproved("", "", shard, f"{look.fault.key}: {look.fault.text}")
            ]
        heads = {
            topic_id: TopicHead(
                *(topic.name, topic_id, shard, newest.version),
                *(topic.totals.segments, topic.totals.records, newest.head),
            )
            for topic_id, topic in newest.topics.items()
            if self._wants(topic.name)
        }
        if self._earlier is None:
            return list(heads.values())
        wanted = {**{head.topic_id: head for head in earlier}, **heads}
        faults = await self._faults(look, newest, wanted.keys(), {head.version: head.head for head in earlier})
        return [_unproved(head, faults[topic_id]) if topic_id in faults else head for topic_id, head in wanted.items()]

    async def _faults(
        self, look: ShardLook, newest: ShardManifest, topic_ids: Collection[str], earlier: Mapping[int, str]
    ) -> dict[str, str]:
        """Why these topics cannot be proved, by id; a fault of the shard's chain is one of all of them."""
        replay = Replay(look.shard, wanted=topic_ids, earlier=earlier)
        try:
            async with aclosing(links(look.log, ShardHistory(self._store, look.shard), 0, newest.version)) as history:
                async for found in history:
                    if fault := replay.take(found):
                        return dict.fromkeys(topic_ids, f"{fault.key}: {fault.text}")
        except Corrupt as damage:
            return dict.fromkeys(topic_ids, str(damage))
        if text := replay.end_fault(newest):
            return dict.fromkeys(topic_ids, f"{look.key}: {text}")
        faults = {topic_id: await _topic_fault(look, newest, topic_id, replay) for topic_id in topic_ids}
        return {topic_id: fault for topic_id, fault in faults.items() if fault}


async def _topic_fault(look: ShardLook, newest: ShardManifest, topic_id: str, replay: Replay) -> str | None:
    topic = replay.topics[topic_id]
    if topic_id not in newest.topics and topic.left_at is not None:
        return f"{look.key}: version {topic.left_at} deleted the topic, with {topic.segments.total()} segments left"
    try:
        fault = await replay.topic_fault(look.log, newest, topic_id)
    except UNREADABLE as damage:
        return str(damage)
    except Conflict:
        return f"{look.key}: was collected while it was read: attest again"
    return f"{fault.key}: {fault.text}" if fault else None


def _unproved(head: TopicHead, fault: str) -> Unproved:
    return Unproved(head.topic, head.topic_id, head.shard, fault)


@dataclass(frozen=True)
class AttestationEnd:
    """The last line of an attestation."""

    heads: int
    digest: str
    format_version: int = 1


def digest_of(heads: Iterable[TopicHead]) -> str:
    """One hash of all `heads`, independent of their order."""
    return hashlib.sha256(b"\n".join(msgspec.json.encode(head) for head in sorted(heads))).hexdigest()


def attestation_lines(heads: Iterable[TopicHead]) -> Iterable[bytes]:
    """The lines of an attestation: one per topic and shard, then an `AttestationEnd`."""
    kept = sorted(heads)
    yield from (msgspec.json.encode(head) for head in kept)
    yield msgspec.json.encode(AttestationEnd(len(kept), digest_of(kept), ATTESTATION_FORMAT_VERSION))


def read_attestation(text: bytes) -> tuple[TopicHead, ...]:
    """The heads that `attestation_lines` wrote. Raises `Invalid` if lines are missing or altered, or if another version
    of Tidelog wrote them."""
    lines = text.splitlines()
    try:
        stated = msgspec.json.decode(lines[-1] if lines else b"", type=_Stated)
        if stated.format_version != ATTESTATION_FORMAT_VERSION:
            raise Invalid(
                f"the attestation is of format version {stated.format_version}, and this Tidelog reads version "
                f"{ATTESTATION_FORMAT_VERSION}: use the Tidelog that wrote it, or attest anew"
            )
        heads = tuple(msgspec.json.decode(line, type=TopicHead) for line in lines[:-1])
        end = msgspec.json.decode(lines[-1], type=AttestationEnd)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"this is not the output of `tidelog bucket attest --json`: {error}") from error
    if end != AttestationEnd(len(heads), digest_of(heads), ATTESTATION_FORMAT_VERSION):
        raise Invalid("the attestation does not match its digest: lines were lost or altered")
    return heads


class _Stated(msgspec.Struct):
    digest: str
    format_version: int = 1
