"""What the archive of a topic holds and owes, read off its manifests and the WAL's extent: pure sums.

    hot      WAL entries on the bucket: those not archived yet (the debt), and those that wait for their deletion
    cold     segments that a manifest names
    garbage  objects that left a manifest and wait for their deletion

A compacted partition is `clean` up to an offset: how many of the offsets below it still have a record says what
compaction saves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest, Segment


@dataclass(frozen=True)
class ColdFigures:
    """Of one partition or several. `raw_bytes`: of keys and values as they were."""

    partitions: int = 0
    segments: int = 0
    records: int = 0
    cold_bytes: int = 0
    raw_bytes: int = 0
    garbage_objects: int = 0
    garbage_bytes: int = 0
    clean_offsets: int = 0
    clean_records: int = 0

    def __add__(self, other: ColdFigures) -> ColdFigures:
        return ColdFigures(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(ColdFigures)))


@dataclass(frozen=True)
class TopicArchive:
    """A topic's, as one broker knows it. `debt_bytes` of the `hot_bytes` are in no segment yet, the oldest of them
    since `debt_age_ms`."""

    cold: ColdFigures = ColdFigures()
    hot_bytes: int = 0
    debt_bytes: int = 0
    debt_age_ms: int = 0

    @property
    def stored_bytes(self) -> int:
        """All that lies in the bucket for it, but for manifests."""
        return self.hot_bytes + self.cold.cold_bytes + self.cold.garbage_bytes


class ColdLedger:
    """The figures of each partition's newest manifest that came by; some hundred bytes a partition."""

    def __init__(self) -> None:
        self._figures: dict[TopicPartition, tuple[int, ColdFigures]] = {}

    def seen(self, manifest: Manifest) -> None:
        known = self._figures.get(manifest.topic_partition)
        if known is None or known[0] < manifest.version:
            self._figures[manifest.topic_partition] = (manifest.version, cold_figures(manifest))

    def of(self, topic_partition: TopicPartition) -> ColdFigures | None:
        """None if no manifest of it came by."""
        known = self._figures.get(topic_partition)
        return known[1] if known else None

    def keep(self, wanted: Collection[TopicPartition]) -> None:
        """Forget all others, as those of shards that are led elsewhere by now."""
        self._figures = {place: self._figures[place] for place in wanted if place in self._figures}


def cold_figures(manifest: Manifest) -> ColdFigures:
    """One pass over the segments."""
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
    """The segments that came with this version. The newest are looked at first, where the archiver's are."""
    wanted = set(manifest.change.added) if manifest.change else set()
    found: list[Segment] = []
    for segment in reversed(manifest.segments):
        if len(found) == len(wanted):
            break
        if segment.sha256 in wanted:
            found.append(segment)
    return found
