"""What a broker counts while it works, and a frozen picture of it for whoever exports it (as `/metrics` does).

Counting is plain addition on the event loop. A PUT of the WAL is shared by the topics in it; each is given a part of
it by its bytes, so that the parts of all topics add up to the PUTs made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.services.broker.archive.topic_archive import ColdLedger, TopicArchive, added_segments
from tidelog.services.broker.telemetry.topic_counts import TopicCounts
from tidelog.services.broker.write.append_buffer import Append
from tidelog.services.workers.sweeping.slow_sweep import SweepCounts
from tidelog.storage.layout import parse_segment_key
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
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
class Histogram:
    """`counts[i]` observations were at most `bounds[i]`, and more than the bound before; the last has no bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True)
class PartitionLag:
    """How far the archive is behind: records of one partition that are committed and not in a segment."""

    topic: str
    partition: int
    cold_end: int
    high_watermark: int


@dataclass(frozen=True)
class ClusterCounts:
    """`shards_led` now. Totals since the broker started: shards handed over cleanly, shards lost to another leader, and
    calls on partitions that peers were asked for."""

    shards_led: int = 0
    handovers: int = 0
    fencings: int = 0
    forwarded: int = 0


@dataclass(frozen=True)
class BrokerMeasurements:
    """One picture of a broker. `topics` by name; `lags` of the partitions that are loaded, as are the `archives`, by
    topic; `usage`: every request to the store; `hedges`: those that were sent beside one that took too long."""

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
    sweeps: SweepCounts = field(default_factory=SweepCounts)


@dataclass
class Measurements:
    """The running counts. Beyond `TOPICS_MAX` topics the rest are counted together as `OTHER_TOPICS`."""

    topics: dict[str, TopicCounts] = field(default_factory=dict)
    cold: ColdLedger = field(default_factory=ColdLedger)
    _ack_counts: list[int] = field(default_factory=lambda: [0] * (len(ACK_SECONDS_BOUNDS) + 1))
    _ack_total_s: float = 0.0

    def committed(self, appends: Sequence[Append], entry_bytes: int) -> None:
        """An entry of `entry_bytes` that holds `appends` is in the log."""
        records: Counter[str] = Counter()
        payload: Counter[str] = Counter()
        for append in appends:
            records[append.partition.topic] += append.count
            payload[append.partition.topic] += append.payload_bytes
        whole = max(1, payload.total())
        for topic, payload_bytes in payload.items():
            counts = self._counts(topic)
            self._set(
                topic,
                replace(
                    counts,
                    records_in=counts.records_in + records[topic],
                    bytes_in=counts.bytes_in + payload_bytes,
                    wal_puts=counts.wal_puts + payload_bytes / whole,
                    wal_bytes=counts.wal_bytes + entry_bytes * payload_bytes / whole,
                ),
            )

    def fetched(self, topic: str, records: int, payload_bytes: int) -> None:
        counts = self._counts(topic)
        self._set(
            topic,
            replace(counts, records_out=counts.records_out + records, bytes_out=counts.bytes_out + payload_bytes),
        )

    def cold_get(self, topic: str) -> None:
        """A fetch had to go to the bucket."""
        counts = self._counts(topic)
        self._set(topic, replace(counts, cold_gets=counts.cold_gets + 1))

    def manifest_seen(self, manifest: Manifest) -> None:
        """Some broker's, or a job's; the newest that is known of its partition."""
        self.cold.seen(manifest)

    def version_made(self, manifest: Manifest) -> None:
        """This broker appended `manifest`: what it wrote for that counts by why it did."""
        added = added_segments(manifest)
        if not added or manifest.change is None:
            return
        column = _WRITTEN_FOR.get(manifest.change.kind)
        if column is None:
            return
        topic = parse_segment_key(added[0].key).topic
        counts = self._counts(topic)
        written_bytes = getattr(counts, column) + sum(segment.size_bytes for segment in added)
        self._set(topic, replace(counts, **{column: written_bytes}))

    def acked(self, seconds: float) -> None:
        """A produce with acks=all was answered `seconds` after it came."""
        self._ack_counts[bisect_left(ACK_SECONDS_BOUNDS, seconds)] += 1
        self._ack_total_s += seconds

    def ack_seconds(self) -> Histogram:
        return Histogram(ACK_SECONDS_BOUNDS, tuple(self._ack_counts), self._ack_total_s)

    def _counts(self, topic: str) -> TopicCounts:
        return self.topics.get(self._label(topic), TopicCounts())

    def _set(self, topic: str, counts: TopicCounts) -> None:
        self.topics[self._label(topic)] = counts

    def _label(self, topic: str) -> str:
        return topic if topic in self.topics or len(self.topics) < TOPICS_MAX else OTHER_TOPICS
