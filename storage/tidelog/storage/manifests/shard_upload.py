"""Uploads segments and appends the version that names them, and never names an object that may be deleted.

    uploads = ShardUpload(store, runtime, grace_s=900.0)
    manifest = await uploads.append(log, encoded, lambda latest, added: ManifestChange(...))

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

from msgspec import structs

from tidelog.storage.errors import Conflict, NotFound, Unavailable
from tidelog.storage.in_flight import each_of
from tidelog.storage.layout import shard_segment_id
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.runtime import Runtime

UPLOAD_ATTEMPTS_MAX = 3
APPEND_ATTEMPTS_MAX = 8
UPLOADS_AT_ONCE = 4

Successor = Callable[[ShardManifest, Sequence[TopicSegment]], ManifestChange]
"""The change of the newest version that adds the segments, as they were uploaded, in their order. The lists of the
topics that it changes were read. Raises `Conflict` if they no longer fit into it."""


@dataclass(frozen=True)
class EncodedSegment:
    """A segment that is not uploaded yet. `segment.key` is its key; `topic_id`: whose it is."""

    topic_id: str
    segment: TopicSegment
    body: Body


class ShardUpload:
    """Shared by a worker's tasks. It holds the bodies until the version is appended, because they may be sent again;
    large ones are mapped files."""

    def __init__(self, store: ObjectStore, runtime: Runtime, grace_s: float) -> None:
        self._store = store
        self._runtime = runtime
        self._grace_s = grace_s

    async def append(self, log: ShardLog, segments: Sequence[EncodedSegment], successor: Successor) -> ShardManifest:
        """Upload `segments`, and append `successor` of the latest version with them. Raises `Unavailable`, and
        `Conflict` if `successor` does, or if others were faster `APPEND_ATTEMPTS_MAX` times; the uploads are orphans
        then."""
        topic_ids = [encoded.topic_id for encoded in segments]
        seen = (log.known or await log.latest()).version
        upload = await self._upload(segments)
        for _ in range(APPEND_ATTEMPTS_MAX):
            latest = await log.with_lists(log.known or await log.latest(), topic_ids)
            if not self._is_fresh(upload) or await _swept_since(log, seen, latest):
                upload = await self._upload([self._renamed(encoded) for encoded in upload.segments])
            seen = latest.version
            try:
                return await log.append(successor(latest, upload.named), latest)
            except Conflict:
                newer = await log.with_lists(await log.latest(), topic_ids)
                successor(newer, upload.named)  # raises if the inputs are gone
        raise Conflict(f"other workers were faster {APPEND_ATTEMPTS_MAX} times")

    async def append_uploaded(self, log: ShardLog, topic_id: str, successor: Successor, seen: int) -> ShardManifest:
        """Append `successor` of the latest version. It names segments that other processes uploaded after version
        `seen`. However long ago that was, they exist unless a sweep has appended since; then it raises `Conflict`, as
        when `successor` does. Also raises `Unavailable`."""
        for _ in range(APPEND_ATTEMPTS_MAX):
            latest = await log.with_lists(await log.latest(), [topic_id])
            if await _swept_since(log, seen, latest):
                raise Conflict("a sweep ran after the segments were uploaded: it may have deleted them. Start over")
            change = successor(latest, ())
            try:
                return await log.append(change, latest)
            except Conflict:
                continue
        raise Conflict(f"other workers were faster {APPEND_ATTEMPTS_MAX} times")

    async def _upload(self, segments: Sequence[EncodedSegment]) -> _Upload:
        for _ in range(UPLOAD_ATTEMPTS_MAX):
            upload = _Upload(tuple(segments), self._runtime.clock.monotonic(), self._runtime.clock.now_ms())
            await each_of(segments, self._put, at_once=UPLOADS_AT_ONCE)
            if self._is_fresh(upload):
                return upload
            segments = [self._renamed(encoded) for encoded in segments]
        raise Unavailable(
            f"{len(segments)} segments took more than half the grace of {self._grace_s:.0f} s to upload, "
            f"{UPLOAD_ATTEMPTS_MAX} times"
        )

    async def _put(self, encoded: EncodedSegment) -> None:
        await self._store.put(encoded.segment.key, encoded.body)

    def _is_fresh(self, upload: _Upload) -> bool:
        """Whether less than half the grace has passed by both clocks: the monotonic one may have stood still with the
        machine, and the wall clock may have been set back."""
        clock = self._runtime.clock
        elapsed_s = max(clock.monotonic() - upload.began_s, (clock.now_ms() - upload.began_ms) / 1_000)
        return elapsed_s <= self._grace_s / 2

    def _renamed(self, encoded: EncodedSegment) -> EncodedSegment:
        """The same bytes under a new id."""
        former = encoded.segment.key
        key = former.replace(shard_segment_id(former), self._runtime.entropy.new_id())
        return replace(encoded, segment=structs.replace(encoded.segment, key=key))


async def _swept_since(log: ShardLog, version: int, latest: ShardManifest) -> bool:
    """Whether a sweep may have deleted objects uploaded when `version` was the newest."""
    for between in range(version + 1, latest.version):
        try:
            found = await log.read(between)
        except NotFound:
            return True  # collected: unknown
        if _is_sweep(found):
            return True
    return latest.version > version and _is_sweep(latest)


def _is_sweep(manifest: ShardManifest) -> bool:
    return manifest.recorded is None or manifest.recorded.kind is ChangeKind.SWEEP


@dataclass(frozen=True)
class _Upload:
    """Uploaded segments, and when their upload began, by the monotonic clock and by the wall clock."""

    segments: tuple[EncodedSegment, ...]
    began_s: float
    began_ms: int

    @property
    def named(self) -> Sequence[TopicSegment]:
        return [encoded.segment for encoded in self.segments]
