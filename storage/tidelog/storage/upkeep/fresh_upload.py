"""Uploads segments and appends the manifest that names them, and never names an object that may be deleted.

    fresh = FreshUpload(store, runtime, grace_s=900.0)
    manifest = await fresh.append(log, encoded, lambda latest, added: replace(latest, segments=...), kind)

Hazard: an upload that no manifest names is an orphan, and the sweep deletes orphans older than the grace. A worker that
stalled between its upload and its manifest (a paused process, a suspended machine) cannot know whether that happened.
Defence, in two halves:

- If more than half the grace passed since the upload began, by either of its clocks, the worker uploads the same bytes
  again under new ids. The other half is for the append, which may stall as well (inv. 5).
- Before it deletes, a sweep appends a version. A worker that finds such a version uploads again; this needs no clock.

The new segments fit into any version that still has their inputs, and go into the newest one. So versions of other
workers in between cost neither work nor another upload, except a sweep's. If the newest version is known, it is not
read again: if another worker, or a sweep, has appended since, the create is a `Conflict`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidelog.storage.errors import Conflict, NotFound, Unavailable
from tidelog.storage.layout import parse_segment_key, segment_key
from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_codec import stored_part
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.segment_codec import EncodedSegment

UPLOAD_ATTEMPTS_MAX = 3
APPEND_ATTEMPTS_MAX = 8

Successor = Callable[[Manifest, Sequence[Segment]], Manifest]
"""Makes the manifest after the latest one, with the segments as they were uploaded, in their order. Raises `Conflict`
if they no longer fit into it."""


class FreshUpload:
    """Shared by a worker's tasks. It holds the bodies until the manifest is appended, because they may be sent again;
    large ones are mapped files."""

    def __init__(self, store: ObjectStore, runtime: Runtime, grace_s: float) -> None:
        self._store = store
        self._runtime = runtime
        self._grace_s = grace_s

    async def append(
        self, log: ManifestLog, segments: Sequence[EncodedSegment], successor: Successor, kind: ChangeKind
    ) -> Manifest:
        """Upload `segments` one after the other, and append `successor` of the latest version with them. Raises
        `Unavailable`, and `Conflict` if `successor` does, or if others were faster `APPEND_ATTEMPTS_MAX` times; the
        uploads are orphans then."""
        seen = log.known_version
        upload = await self._upload(segments)
        for _ in range(APPEND_ATTEMPTS_MAX):
            latest = log.known or await log.latest()
            if not self._is_fresh(upload) or await _swept_since(log, seen, latest):
                upload = await self._upload([self._renamed(encoded) for encoded in upload.segments])
            seen = latest.version
            try:
                return await log.append(successor(latest, upload.named), kind)
            except Conflict:
                successor(await log.latest(), upload.named)  # raises if the inputs are gone
        raise Conflict(f"other workers were faster {APPEND_ATTEMPTS_MAX} times")

    async def _upload(self, segments: Sequence[EncodedSegment]) -> _Upload:
        for _ in range(UPLOAD_ATTEMPTS_MAX):
            upload = _Upload(tuple(segments), self._runtime.clock.monotonic(), self._runtime.clock.now_ms())
            for encoded in segments:
                await self._store.put(encoded.segment.key, encoded.body)
            if self._is_fresh(upload):
                return upload
            segments = [self._renamed(encoded) for encoded in segments]
        raise Unavailable(
            f"{len(segments)} segments took more than half the grace of {self._grace_s:.0f} s to upload, "
            f"{UPLOAD_ATTEMPTS_MAX} times"
        )

    def _is_fresh(self, upload: _Upload) -> bool:
        """Whether less than half the grace has passed by both clocks: the monotonic one may have stood still with the
        machine, and the wall clock may have been set back."""
        clock = self._runtime.clock
        elapsed_s = max(clock.monotonic() - upload.began_s, (clock.now_ms() - upload.began_ms) / 1_000)
        return elapsed_s <= self._grace_s / 2

    def _renamed(self, encoded: EncodedSegment) -> EncodedSegment:
        """The same bytes under a new id."""
        name = parse_segment_key(encoded.segment.key)
        key = segment_key(
            name.topic,
            name.topic_id,
            name.partition,
            name.base_offset,
            name.last_offset,
            self._runtime.entropy.new_id(),
        )
        return EncodedSegment(replace(encoded.segment, key=key), encoded.body)


async def _swept_since(log: ManifestLog, version: int, latest: Manifest) -> bool:
    """Whether a sweep may have deleted objects uploaded when `version` was the newest."""
    for between in range(version + 1, latest.version):
        try:
            change = stored_part(await log.stored(between)).change
        except NotFound:
            return True  # collected: unknown
        if change is None or change.kind is ChangeKind.SWEEP:
            return True
    return latest.version > version and (latest.change is None or latest.change.kind is ChangeKind.SWEEP)


@dataclass(frozen=True)
class _Upload:
    """Uploaded segments, and when their upload began, by the monotonic clock and by the wall clock."""

    segments: tuple[EncodedSegment, ...]
    began_s: float
    began_ms: int

    @property
    def named(self) -> Sequence[Segment]:
        return [encoded.segment for encoded in self.segments]
