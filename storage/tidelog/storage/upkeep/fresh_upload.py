"""Uploads segments and appends the manifest that names them, and never names an object that may be gone.

An upload that no manifest names is an orphan, and the sweep deletes orphans once they are older than the grace. A
worker that was stalled between its upload and its manifest (a paused process, a suspended machine) cannot know whether
that has happened. So if more than half the grace went by since it began to upload, by either of its clocks, it uploads
the same bytes again under new ids; the other half is for the append, which may stall as well (inv. 5).

    fresh = FreshUpload(store, runtime, grace_s=900.0)
    manifest = await fresh.append(log, encoded, lambda added: replace(latest, segments=(*kept, *added)), kind)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidelog.storage.errors import Unavailable
from tidelog.storage.layout import parse_segment_key, segment_key
from tidelog.storage.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segment_codec import EncodedSegment

UPLOAD_ATTEMPTS_MAX = 3

NextManifest = Callable[[Sequence[Segment]], Manifest]
"""The manifest that names the segments as they were uploaded, in their order."""


class FreshUpload:
    """Shared by a worker's tasks. Bodies are held until the manifest is there, since they may be sent again: large ones
    are mapped files."""

    def __init__(self, store: ObjectStore, runtime: Runtime, grace_s: float) -> None:
        self._store = store
        self._runtime = runtime
        self._grace_s = grace_s

    async def append(
        self, log: ManifestLog, segments: Sequence[EncodedSegment], next_manifest: NextManifest, kind: ChangeKind
    ) -> Manifest:
        """Upload `segments` one after the other and append `next_manifest` of them. Raises `Conflict` (another worker
        appended that version: start over from its manifest), `Unavailable`; what was uploaded is an orphan then."""
        for _ in range(UPLOAD_ATTEMPTS_MAX):
            stopwatch = _Stopwatch(self._runtime)
            for encoded in segments:
                await self._store.put(encoded.segment.key, encoded.body)
            if stopwatch.elapsed_s() <= self._grace_s / 2:
                return await log.append(next_manifest([encoded.segment for encoded in segments]), kind)
            segments = [self._renamed(encoded) for encoded in segments]
        raise Unavailable(
            f"{len(segments)} segments took more than half the grace of {self._grace_s:.0f} s to upload, "
            f"{UPLOAD_ATTEMPTS_MAX} times"
        )

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


class _Stopwatch:
    """Takes the longer of what two clocks say: the monotonic one may have stood still with the machine, the wall clock
    may have been set back."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._began_s = self._clock.monotonic()
        self._began_ms = self._clock.now_ms()

    def elapsed_s(self) -> float:
        return max(self._clock.monotonic() - self._began_s, (self._clock.now_ms() - self._began_ms) / 1_000)
