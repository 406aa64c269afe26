"""Deletes the records below an offset on request: Kafka's ``DeleteRecords``.

The log start moves to that offset, and segments that lie wholly below it leave the list in the same version; their
objects are deleted a grace later. If the offset cuts a segment, the records below it are no longer read, and are
deleted with the segment.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog

CONFLICTS_MAX = 8


def deleted_below(manifest: Manifest, offset: int) -> Manifest:
    """`manifest` with its log start at `offset`, at most its cold end; itself if it begins there or later."""
    assert offset <= manifest.cold_end, "only archived records are deleted here"
    if offset <= manifest.log_start_offset:
        return manifest
    left = tuple(segment for segment in manifest.segments if segment.next_offset > offset)
    return replace(manifest, log_start_offset=offset, segments=left)


async def delete_records(log: ManifestLog, before_offset: int) -> Manifest:
    """Delete the records below `before_offset`, or below the cold end if that is less. Returns the newest manifest,
    whose log may begin later than `before_offset`, or earlier if records up to it are not archived yet. Raises
    `Conflict` if other workers keep being faster; `Unavailable`, `Corrupt`. Running again is always right."""
    for _ in range(CONFLICTS_MAX - 1):
        try:
            return await _delete_once(log, before_offset)
        except Conflict:
            continue  # another worker was faster: start over from its version
    return await _delete_once(log, before_offset)


async def _delete_once(log: ManifestLog, before_offset: int) -> Manifest:
    manifest = await log.latest()
    after = deleted_below(manifest, min(before_offset, manifest.cold_end))
    return manifest if after is manifest else await log.append(after, ChangeKind.DELETE_RECORDS)
