"""Copies one partition's cold side: first segments alone, as often as one likes; at last the manifests that name them.

The manifest is read first, then its segments are copied, and only when all are there its versions follow, the newest
last. If a segment is deleted meanwhile (it was merged, or expired, more than a grace ago) the newest manifest is read
again and what that lacks is copied. Old versions and the history go along, so that the chain of hashes can be followed
in the copy as well (`attest`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidelog.storage.bucket.copy_transfer import Changed, Transfer
from tidelog.storage.bucket.known_topics import KnownTopic
from tidelog.storage.errors import Corrupt, NotFound, Unavailable
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import (
    TopicPartition,
    history_prefix,
    manifest_prefix,
    number_of,
    segment_prefix,
)
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectInfo, list_all

ATTEMPTS_MAX = 16


class PartitionCopy:
    """One partition on its way. `is_deleted` tells whether its topic was deleted meanwhile."""

    def __init__(
        self, transfer: Transfer, topic: KnownTopic, partition: int, is_deleted: Callable[[], Awaitable[bool]]
    ) -> None:
        self._transfer = transfer
        self._topic = topic.name
        self._place = TopicPartition(topic.topic_id, partition)
        self._is_deleted = is_deleted
        self._prefix = manifest_prefix(topic.name, topic.topic_id, partition)

    async def segments(self) -> None:
        """Copy what the newest manifest names and the target lacks; the target's manifests stay as they are."""
        await self._until_stable(self._copy_segments)

    async def publish(self) -> None:
        """Copy segments, then manifests, then delete from the target what is in them no more. Raises `Unavailable` if
        the source changes faster than that."""
        await self._until_stable(self._publish)

    async def _until_stable(self, act: Callable[[], Awaitable[object]]) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                await act()
            except (NotFound, Changed):
                if await self._is_deleted():
                    return
                continue
            except Corrupt as error:
                if not await self._is_deleted():
                    self._transfer.is_damaged(error.name, error.reason)
            return
        raise Unavailable(
            f"segments of {self._topic}-{self._place.partition} are deleted faster than they are copied: raise "
            "delete.grace.ms of the brokers, or copy once more when less is merged"
        )

    async def _copy_segments(self) -> Manifest:
        manifest = await ManifestLog(self._transfer.source, self._topic, self._place).latest()
        if manifest.version < 0:
            return manifest
        prefix = segment_prefix(self._topic, self._place.topic_id, self._place.partition)
        present = await self._transfer.sizes(prefix)

        async def copy(segment: Segment) -> None:
            if segment.key in present:
                await self._transfer.replace(segment.key, segment.size_bytes, sha256=segment.sha256)
            else:
                await self._transfer.copy(segment.key, segment.size_bytes, sha256=segment.sha256)

        missing = [segment for segment in manifest.segments if present.get(segment.key) != segment.size_bytes]
        async for _ in in_order(missing, copy, at_once=self._transfer.at_once):
            pass
        there = [segment.size_bytes for segment in manifest.segments if segment not in set(missing)]
        self._transfer.skip(len(there), sum(there))
        return manifest

    async def _publish(self) -> None:
        manifest = await self._copy_segments()
        if manifest.version < 0:
            return
        history = history_prefix(self._topic, self._place.topic_id, self._place.partition)
        versions = await self._versions(manifest)  # first: what is collected after this has its block already
        blocks = [info async for info in list_all(self._transfer.source, history)]
        present = await self._transfer.sizes(self._prefix)
        for info in (*blocks, *versions):  # in this order: a version counts once all it follows from is there
            if present.get(info.key) == info.size:
                self._transfer.skip(1, info.size)
            else:
                await self._transfer.copy(info.key, info.size)
        await self._prune(manifest, versions, present)

    async def _versions(self, manifest: Manifest) -> Sequence[ObjectInfo]:
        """Up to the version that `manifest` is."""
        found = []
        async for info in list_all(self._transfer.source, self._prefix):
            number = number_of(info.key, self._prefix, ".json")
            if number is not None and number <= manifest.version:
                found.append(info)
        return found

    async def _prune(self, manifest: Manifest, versions: Sequence[ObjectInfo], present: Mapping[str, int]) -> None:
        """What an earlier copy brought and the source has no more."""
        kept = {info.key for info in versions}
        old = [key for key in present if number_of(key, self._prefix, ".json") is not None and key not in kept]
        named = {segment.key for segment in manifest.segments}
        prefix = segment_prefix(self._topic, self._place.topic_id, self._place.partition)
        old += [key for key in await self._transfer.sizes(prefix) if key not in named]
        async for _ in in_order(old, self._transfer.delete, at_once=self._transfer.at_once):
            pass
