"""Deletion of the records below an offset, on somebody's word: Kafka's ``DeleteRecords``.

The log start moves to that offset, and the segments that lie wholly below it leave the list in the same version; their
objects go a grace later. Of a segment that the offset cuts, the records below it are no longer read, and go with it.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog

CONFLICTS_MAX = 8


def deleted_below(manifest: Manifest, offset: int) -> Manifest:
    """`manifest` as its log begins at `offset`, which is at most its cold end; itself if it begins there or later."""
    assert offset <= manifest.cold_end, "what is not cold is not deleted here"
    if offset <= manifest.log_start_offset:
        return manifest
    left = tuple(segment for segment in manifest.segments if segment.next_offset > offset)
    return replace(manifest, log_start_offset=offset, segments=left)


async def delete_records(log: ManifestLog, before_offset: int) -> Manifest:
    """Delete what is below `before_offset`, or below the cold end where that is less; the newest manifest then, which
    may still begin further on, or earlier if records up to `before_offset` are not cold yet. Raises `Conflict` if
    other workers are faster again and again; `Unavailable`, `Corrupt`. Running again is always right."""
    for _ in range(CONFLICTS_MAX - 1):
        try:
            return await _delete_once(log, before_offset)
        except Conflict:
            continue  # another worker was faster: start over from what it made
    return await _delete_once(log, before_offset)


async def _delete_once(log: ManifestLog, before_offset: int) -> Manifest:
    manifest = await log.latest()
    after = deleted_below(manifest, min(before_offset, manifest.cold_end))
    return manifest if after is manifest else await log.append(after, ChangeKind.DELETE_RECORDS)
