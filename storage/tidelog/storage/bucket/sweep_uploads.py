"""Which uploads of a partition no manifest names, and the version that sees to it that none ever will (`sweep`)."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.storage.bucket.topic_listing import PartitionListing
from tidelog.storage.errors import Conflict, Corrupt
from tidelog.storage.layout import parse_segment_key
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectInfo, ObjectStore
from tidelog.storage.runtime import Runtime

FENCE_ATTEMPTS_MAX = 8


class UploadSweep:
    """Judges uploads by the newest manifest. Raises `Corrupt` if that cannot be read, `Unavailable`."""

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    async def orphans(self, listing: PartitionListing) -> Sequence[ObjectInfo]:
        """What is listed and, by the newest manifest, neither in the log nor waiting for its deletion."""
        if not listing.segments:
            return ()
        manifest = await self._log(listing).latest()
        return unnamed(list(listing.segments.values()), manifest)

    async def fenced(self, listing: PartitionListing, orphans: Sequence[ObjectInfo]) -> list[ObjectInfo]:
        """Those of `orphans` that are so still, once a version was appended that keeps them so. None if other workers
        append faster than this one: another day will do."""
        log = self._log(listing)
        for _ in range(FENCE_ATTEMPTS_MAX):
            manifest = await log.latest()
            still = unnamed(orphans, manifest)
            if not still:
                return []
            try:
                await log.append(manifest, ChangeKind.SWEEP)
            except Conflict:
                continue
            return still
        return []

    def _log(self, listing: PartitionListing) -> ManifestLog:
        """Knows nothing from before."""
        return ManifestLog(self._store, listing.name.topic, listing.place, self._runtime.clock)


def unnamed(infos: Sequence[ObjectInfo], manifest: Manifest) -> list[ObjectInfo]:
    """Those of `infos` that are segments below the manifest's end and that it does not name."""
    named = {segment.key for segment in manifest.segments} | {garbage.key for garbage in manifest.garbage}
    return [info for info in infos if info.key not in named and _ends_below(info.key, manifest.cold_end)]


def _ends_below(key: str, cold_end: int) -> bool:
    try:
        return parse_segment_key(key).last_offset < cold_end
    except Corrupt:
        return False  # none of ours
