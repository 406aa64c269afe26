"""Shows that an archive was not altered since somebody wrote its heads down: what `tidelog bucket attest` prints.

    attestation = BucketAttestation(store)
    async for told in attestation.partitions():             # a PartitionHead, or why there is none
        ...
    attestation.digest                                      # one hash for the whole bucket

The head of a partition stands for its whole history (`manifest_chain`), the digest for all heads. With heads of an
earlier time each partition's history is followed from its first version, through the blocks of versions that were
collected and then the versions that are there, and every hash is computed anew (`manifest_replay`): the earlier head
must be one of them. Segments are named by the sha256 of their bytes there; that the bytes are those is what
``tidelog bucket verify --deep`` shows.

Safe beside workers: what a partition got after its newest version was read is not looked at, and a version that is
collected meanwhile is found in the history.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable

from tidelog.storage.bucket.attestation import PartitionHead, Unproved, digest_of
from tidelog.storage.bucket.manifest_replay import Replay
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import TOPICS_PREFIX, TopicPartition, manifest_prefix, topic_prefix
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_chain import Step, chain_fault, step_of
from tidelog.storage.manifests.manifest_codec import told_by
from tidelog.storage.manifests.manifest_history import HistoryBlock, ManifestHistory, block_fault
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.upkeep.task import Place

PARTITIONS_AT_ONCE = 8
OBJECTS_AT_ONCE = 8

_PLACE = re.compile(r"topics/([^/]+)/([^/]+)/(?:_manifest/(\d{5,})/)?")
_AFTER_ALL = "~"
"""Sorts after every other character of a key."""


class BucketAttestation:
    """One run. `earlier` are heads of an earlier run; without them only the newest versions are looked at."""

    def __init__(self, store: ObjectStore, earlier: Iterable[PartitionHead] | None = None) -> None:
        self._store = store
        self._earlier = None if earlier is None else {head.place: head for head in earlier}
        self._heads: list[PartitionHead] = []

    @property
    def digest(self) -> str:
        """Of the partitions attested so far."""
        return digest_of(self._heads)

    async def partitions(self) -> AsyncIterator[PartitionHead | Unproved]:
        """Every partition that is archived or was, by topic. Raises `Unavailable`, `Denied`."""
        missing = dict(self._earlier or {})
        places = archived_partitions(self._store)
        async for place, told in in_order(places, self._attest, at_once=PARTITIONS_AT_ONCE):
            missing.pop(place, None)
            if isinstance(told, PartitionHead):
                self._heads.append(told)
            yield told
        for place in missing:
            yield _unproved(place, "has no manifest any more: its topic was deleted, or its manifests were")

    async def _attest(self, place: Place) -> PartitionHead | Unproved:
        log = ManifestLog(self._store, place.topic, place.topic_partition)
        try:
            newest = await log.latest()
            fault = chain_fault(newest) if self._earlier is None else await self._history_fault(place, newest)
        except Corrupt as error:
            return _unproved(place, str(error))
        except NotFound:
            return _unproved(place, "was deleted meanwhile")
        return _unproved(place, fault) if fault else _head_of(place, newest)

    async def _history_fault(self, place: Place, newest: Manifest) -> str | None:
        earlier = (self._earlier or {}).get(place)
        replay = Replay(place.topic_partition, {earlier.version: earlier.head} if earlier else None)
        async for step in steps_up_to(self._store, place, newest.version):
            if fault := replay.take(step):
                return fault
        return replay.end_fault(newest)


async def archived_partitions(store: ObjectStore) -> AsyncIterator[Place]:
    """Every partition that has a manifest, by a request each and one a topic, however many objects they have."""
    after = TOPICS_PREFIX
    while page := await store.list(TOPICS_PREFIX, start_after=after, limit=1):
        found = _PLACE.match(page[0].key)
        if found is None:
            after = page[0].key
            continue
        topic, topic_id, partition = found.groups()
        if partition is None:  # its segments: its manifests, which sort before them, were all passed
            after = topic_prefix(topic, topic_id) + _AFTER_ALL
            continue
        yield Place(topic, TopicPartition(topic_id, int(partition)))
        after = manifest_prefix(topic, topic_id, int(partition)) + _AFTER_ALL


async def steps_up_to(store: ObjectStore, place: Place, last: int) -> AsyncIterator[Step]:
    """The history of a partition, from version 0 to `last`. Raises `Corrupt` where it has a gap."""
    history = ManifestHistory(store, place.topic, place.topic_partition)
    log = ManifestLog(store, place.topic, place.topic_partition)

    async def read_block(versions: tuple[int, int]) -> HistoryBlock:
        block = await history.read(*versions)
        if fault := block_fault(block):
            raise Corrupt(history.key(*versions), fault)
        return block

    async def read_step(version: int) -> Step:
        manifest = told_by(await log.stored(version))
        if fault := chain_fault(manifest):
            raise Corrupt(log.key(version), fault)
        return step_of(manifest)

    due = 0
    while due <= last:
        blocks = [versions for versions in await history.blocks() if versions[1] >= due]
        async for _, block in in_order(blocks, read_block, at_once=OBJECTS_AT_ONCE):
            for step in block.steps:
                if step.version == due <= last:
                    yield step
                    due += 1
        try:
            async for _, step in in_order(range(due, last + 1), read_step, at_once=OBJECTS_AT_ONCE):
                yield step
                due += 1
        except NotFound:
            if not any(first <= due <= end for first, end in await history.blocks()):
                raise Corrupt(log.key(due), "is missing, and no block of the history has it") from None


def _head_of(place: Place, manifest: Manifest) -> PartitionHead:
    where = place.topic_partition
    offsets = (manifest.log_start_offset, manifest.cold_end)
    counts = (*offsets, len(manifest.segments))
    return PartitionHead(place.topic, where.topic_id, where.partition, manifest.version, *counts, manifest.head)


def _unproved(place: Place, fault: str) -> Unproved:
    return Unproved(place.topic, place.topic_partition.topic_id, place.topic_partition.partition, fault)
