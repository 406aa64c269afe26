"""Counts what a broker does, and takes frozen snapshots for exporters such as `/metrics`.

Counting is addition on the event loop. A PUT of the WAL is divided among the topics in it by their bytes, so that the
shares of all topics add up to the PUTs made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.services.broker.api.costs import TopicArchive, TopicCounts
from tidelog.services.broker.telemetry.brake_figures import BrakeFigures
from tidelog.services.broker.telemetry.group_figures import GroupFigures
from tidelog.storage.bucket.sweep.sweep_report import Stray, SweepReport
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.stores.counting import Usage

ACK_SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OTHER_TOPICS = "(other topics)"
TOPICS_MAX = 5_000
_WRITTEN_FOR = {
    ChangeKind.ARCHIVE: "archived_bytes",
    ChangeKind.MERGE: "merged_bytes",
    ChangeKind.COMPACT: "compacted_bytes",
}


@dataclass(frozen=True)
class SweepCounts:
    """The results of the sweeps of this process: how many finished and how many were cut off, and what they deleted, by
    reason. Of the last finished sweep: the bytes that were too young to delete, and the places it left alone."""

    finished: int = 0
    cut_off: int = 0
    deleted: Mapping[str, int] = field(default_factory=dict)
    deleted_bytes: Mapping[str, int] = field(default_factory=dict)
    young_bytes: int = 0
    left_alone: int = 0

    def with_deleted(self, stray: Stray) -> SweepCounts:
        reason = stray.reason.value
        return replace(
            self,
            deleted={**self.deleted, reason: self.deleted.get(reason, 0) + 1},
            deleted_bytes={**self.deleted_bytes, reason: self.deleted_bytes.get(reason, 0) + stray.size_bytes},
        )

    def with_end(self, report: SweepReport, *, finished: bool) -> SweepCounts:
        if not finished:
            return replace(self, cut_off=self.cut_off + 1)
        young_bytes, left_alone = report.young_bytes, len(report.unjudged) + report.more_unjudged
        return replace(self, finished=self.finished + 1, young_bytes=young_bytes, left_alone=left_alone)


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` observations were at most `bounds[i]` and above the previous bound. The last has no bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True)
class PartitionLag:
    """The archive lag of a partition: committed records that are in no segment."""

    topic: str
    partition: int
    cold_end: int
    high_watermark: int


@dataclass(frozen=True)
class ClusterCounts:
    """`shards_led` now. Since the start: shards handed over, shards lost to another leader, and calls forwarded to
    peers."""

    shards_led: int = 0
    handovers: int = 0
    fencings: int = 0
    forwarded: int = 0


@dataclass(frozen=True)
class BrokerMeasurements:
    """A snapshot of a broker. `topics` and `archives` by topic name; `lags` of the loaded partitions; `usage`: all
    requests to the store; `hedges`: requests that were sent beside a slow one."""

    topics: Mapping[str, TopicCounts]
    ack_seconds: Histogram
    buffered_bytes: int
    cache_bytes: int
    waiting_fetches: int
    lags: Sequence[PartitionLag]
    usage: Usage
    hedges: int = 0
    cluster: ClusterCounts = ClusterCounts()
    archives: Mapping[str, TopicArchive] = field(default_factory=dict)
    brake: BrakeFigures = field(default_factory=BrakeFigures)
    sweeps: SweepCounts = field(default_factory=SweepCounts)
    groups: GroupFigures = field(default_factory=GroupFigures)


@dataclass
class Measurements:
    """The running counts. Topics beyond `TOPICS_MAX` are counted together as `OTHER_TOPICS`."""

    _ack_counts: list[int] = field(default_factory=lambda: [0] * (len(ACK_SECONDS_BOUNDS) + 1))
    _ack_total_s: float = 0.0
    _topics: dict[str, TopicCounts] = field(default_factory=dict)

    def topics(self) -> Mapping[str, TopicCounts]:
        return {topic: replace(counts) for topic, counts in self._topics.items()}

    def committed(self, appends: Iterable[tuple[str, int, int]], entry_bytes: int) -> None:
        """An entry of `entry_bytes` is in the log. `appends`: topic, records and payload bytes of each append in it."""
        records: Counter[str] = Counter()
        payload: Counter[str] = Counter()
        for topic, count, payload_bytes in appends:
            records[topic] += count
            payload[topic] += payload_bytes
        whole = max(1, payload.total())
        for topic, payload_bytes in payload.items():
            counts = self._counts(topic)
            counts.records_in += records[topic]
            counts.bytes_in += payload_bytes
            counts.wal_puts += payload_bytes / whole
            counts.wal_bytes += entry_bytes * payload_bytes / whole

    def fetched(self, topic: str, records: int, payload_bytes: int) -> None:
        counts = self._counts(topic)
        counts.records_out += records
        counts.bytes_out += payload_bytes

    def cold_get(self, topic: str) -> None:
        """A fetch read from the bucket."""
        self._counts(topic).cold_gets += 1

    def wrote(self, kind: ChangeKind, segments: Iterable[tuple[str, TopicSegment]]) -> None:
        """This broker wrote `segments`, each with the name of its topic, and appended a version that lists them."""
        if column := _WRITTEN_FOR.get(kind):
            for topic, segment in segments:
                counts = self._counts(topic)
                setattr(counts, column, getattr(counts, column) + segment.size_bytes)

    def acked(self, seconds: float) -> None:
        self._ack_counts[bisect_left(ACK_SECONDS_BOUNDS, seconds)] += 1
        self._ack_total_s += seconds

    def ack_seconds(self) -> Histogram:
        return Histogram(ACK_SECONDS_BOUNDS, tuple(self._ack_counts), self._ack_total_s)

    def _counts(self, topic: str) -> TopicCounts:
        label = topic if topic in self._topics or len(self._topics) < TOPICS_MAX else OTHER_TOPICS
        return self._topics.setdefault(label, TopicCounts())
