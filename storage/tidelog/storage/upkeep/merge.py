"""Merging: neighbouring small segments of a partition become one large segment with the same records in the same order.

    task = MergeTask(store, runtime, limits, executor, spill_folder)
    due_at_ms = task.due_at_ms(manifest, rules, now_ms)
    manifest = await task.run(place, log, rules)          # one merge, one version

`merge_plan` decides what is merged, and when. A step reads each input in requests of `READ_BYTES_MAX`, one input ahead,
checks it against its sha256 in the manifest, and writes the records row group by row group into a spill file
(`segment_writer`), so memory does not grow with the size of segments. The output is uploaded and replaces its inputs in
the newest manifest; the archiver may have added segments meanwhile. A crash leaves at most an orphan.

Row groups are decoded and encoded again, not copied. Copying would keep the small row groups of the first segments,
which readers would have to fetch one by one, and their quick compression, although the result stays for years. Decoding
is about a tenth of the work.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.parquet.parquet_format import Footer
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.segment_codec import (
    FINAL_SEGMENT_FLAVOR,
    SEGMENT_FLAVOR,
    EncodedSegment,
    decode_segment_footer,
    decode_segment_rows,
)
from tidelog.storage.segments.segment_reader import size_fault
from tidelog.storage.upkeep.fresh_upload import FreshUpload
from tidelog.storage.upkeep.in_thread import in_thread
from tidelog.storage.upkeep.merge_plan import FINAL_LEVEL, Merge, merge_due_at_ms, merged, plan_merge
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.segment_input import RowGroups, stretches
from tidelog.storage.upkeep.segment_writer import SegmentWriter
from tidelog.storage.upkeep.spill_file import SpillFile
from tidelog.storage.upkeep.task import Place

READ_BYTES_MAX = 16 * 1024 * 1024
"""The most stored bytes per request. A larger input is gathered in a spill file."""
READ_SHARE = 8
"""A request, or one decoding, takes at most this fraction (one in 8) of the memory. In memory are the bytes of two
requests, one decoding, and up to two row groups that are being written."""


class MergeTask:
    """The `UpkeepTask` of merging. `executor` decodes and encodes (None: the event loop's default). `spill_folder`
    holds unfinished segments, in files without names, which vanish with the process."""

    def __init__(
        self,
        store: ObjectStore,
        runtime: Runtime,
        limits: UpkeepLimits,
        executor: Executor | None,
        spill_folder: Path,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._executor = executor
        self._spill_folder = spill_folder
        self._fresh = FreshUpload(store, runtime, limits.grace_s)
        self._read_bytes = max(1, min(READ_BYTES_MAX, limits.memory_bytes // READ_SHARE))

    def due_at_ms(self, manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int | None:
        return merge_due_at_ms(manifest, rules, now_ms)

    async def run(self, place: Place, log: ManifestLog, rules: UpkeepRules) -> Manifest | None:
        """One merge. It also raises `Unavailable` if the spill folder is full."""
        manifest = await log.latest()
        merge = plan_merge(manifest, rules, self._runtime.clock.now_ms())
        if merge is None:
            return None
        try:
            encoded = await self._encoded(place, merge, rules)
        except NotFound as error:
            if (await log.latest()).version > manifest.version:
                raise Conflict(f"a segment left the manifest while it was being merged: {error}") from error
            raise Corrupt(log.key(manifest.version), f"names a segment that does not exist: {error}") from error

        def successor(latest: Manifest, added: Sequence[Segment]) -> Manifest:
            return replace(latest, segments=merged(latest, merge.segments, added[0]))

        return await self._fresh.append(log, [encoded], successor, ChangeKind.MERGE)

    async def _encoded(self, place: Place, merge: Merge, rules: UpkeepRules) -> EncodedSegment:
        flavor = FINAL_SEGMENT_FLAVOR if merge.level == FINAL_LEVEL else SEGMENT_FLAVOR
        if rules.key_bloom_filter:
            flavor = replace(flavor, bloom_column="key")
        writer = SegmentWriter(place.topic, place.topic_partition, flavor, self._spill_folder)
        try:
            async with aclosing(self._bodies(merge.segments)) as bodies:
                async for segment, body in bodies:
                    await self._copy(segment, body, writer)
            encoded = await in_thread(self._executor, writer.finish, self._runtime.entropy.new_id())
        finally:
            writer.close()
        segment = replace(encoded.segment, level=merge.level, archived_at_ms=_archived_at_ms(merge.segments))
        _check_same_records(merge.segments, segment)
        return EncodedSegment(segment, encoded.body)

    async def _copy(self, segment: Segment, body: memoryview, writer: SegmentWriter) -> None:
        footer = await in_thread(self._executor, _checked_footer, segment, body)
        for groups in stretches(footer.row_groups, self._read_bytes):
            await in_thread(self._executor, _copy_rows, segment, footer, groups, body, writer)

    async def _bodies(self, segments: Sequence[Segment]) -> AsyncGenerator[tuple[Segment, memoryview]]:
        """Each segment with its bytes, one segment ahead."""
        ahead: asyncio.Task[memoryview] | None = None
        try:
            for at, segment in enumerate(segments):
                body = await (ahead or self._body(segment))
                ahead = asyncio.create_task(self._body(segments[at + 1])) if at + 1 < len(segments) else None
                yield segment, body
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    async def _body(self, segment: Segment) -> memoryview:
        """All bytes of a segment, in memory if one request is enough, else in a mapped file."""
        if segment.size_bytes <= self._read_bytes:
            return memoryview((await self._store.get(segment.key)).data)
        file = SpillFile(self._spill_folder)
        try:
            for start in range(0, segment.size_bytes, self._read_bytes):
                stored = await self._store.get(segment.key, ByteRange(start, self._read_bytes))
                await in_thread(self._executor, file.write, memoryview(stored.data))
            return memoryview(file.mapped())
        finally:
            file.close()


def _checked_footer(segment: Segment, body: memoryview) -> Footer:
    """Raises `Corrupt` unless `body` is the object that the manifest names: a merge must not copy damaged or foreign
    records into a segment that passes for sound (`tidelog bucket attest`)."""
    if fault := size_fault(segment, len(body)):
        raise Corrupt(segment.key, fault)
    if hashlib.sha256(body).hexdigest() != segment.sha256:
        raise Corrupt(segment.key, "is not the segment its manifest names: another sha256")
    return decode_segment_footer(segment.key, body, len(body))


def _copy_rows(segment: Segment, footer: Footer, groups: RowGroups, body: memoryview, writer: SegmentWriter) -> None:
    writer.write(decode_segment_rows(segment.key, footer, groups, body[groups[0].start : groups[-1].end]))


def _archived_at_ms(inputs: Sequence[Segment]) -> int:
    return min(segment.archived_at_ms for segment in inputs)


def _check_same_records(inputs: Sequence[Segment], output: Segment) -> None:
    """Raises `Corrupt` unless `output` has the records that the manifest states for all inputs together."""
    said = (
        inputs[0].base_offset,
        inputs[-1].last_offset,
        sum(segment.records for segment in inputs),
        min(segment.min_timestamp_ms for segment in inputs),
        max(segment.max_timestamp_ms for segment in inputs),
    )
    made = output.base_offset, output.last_offset, output.records, output.min_timestamp_ms, output.max_timestamp_ms
    if said != made:
        raise Corrupt(inputs[0].key, f"and its neighbours have {made}, their manifest says {said}")
