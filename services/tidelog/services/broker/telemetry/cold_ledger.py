"""Sums up manifests: how many segments, bytes and garbage a partition has.

    hot      WAL entries in the bucket: not archived yet (the debt), or waiting for their deletion
    cold     segments that a manifest lists
    garbage  objects that left a manifest and wait for their deletion

A compacted partition is clean up to an offset. The ratio of records to offsets below it shows what compaction saves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidelog.services.broker.api.costs import ColdFigures
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest, Segment


class ColdLedger:
    """The figures of the newest manifest of each partition that passed through this broker; some hundred bytes each."""

    def __init__(self) -> None:
        self._figures: dict[TopicPartition, tuple[int, ColdFigures]] = {}

    def manifest_read(self, manifest: Manifest) -> None:
        known = self._figures.get(manifest.topic_partition)
        if known is None or known[0] < manifest.version:
            self._figures[manifest.topic_partition] = (manifest.version, cold_figures(manifest))

    def of(self, topic_partition: TopicPartition) -> ColdFigures | None:
        """None if no manifest of it has passed through."""
        known = self._figures.get(topic_partition)
        return known[1] if known else None

    def keep(self, wanted: Collection[TopicPartition]) -> None:
        """Drop all others, for example those of shards that are led elsewhere now."""
        self._figures = {place: self._figures[place] for place in wanted if place in self._figures}


def cold_figures(manifest: Manifest) -> ColdFigures:
    clean = [segment for segment in manifest.segments if segment.next_offset <= manifest.clean_end]
    return ColdFigures(
        partitions=1,
        segments=len(manifest.segments),
        records=sum(segment.records for segment in manifest.segments),
        cold_bytes=manifest.size_bytes,
        raw_bytes=sum(segment.raw_bytes for segment in manifest.segments),
        garbage_objects=len(manifest.garbage),
        garbage_bytes=sum(garbage.size_bytes for garbage in manifest.garbage),
        clean_offsets=max(0, manifest.clean_end - manifest.log_start_offset),
        clean_records=sum(segment.records for segment in clean),
    )


def added_segments(manifest: Manifest) -> Sequence[Segment]:
    """The segments that this version added. The archiver adds at the end, so the search begins there."""
    wanted = set(manifest.change.added) if manifest.change else set()
    found: list[Segment] = []
    for segment in reversed(manifest.segments):
        if len(found) == len(wanted):
            break
        if segment.sha256 in wanted:
            found.append(segment)
    return found
