"""Values: the requests and bytes that a broker's work costs, by topic. The caller knows the prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from tidelog.storage.stores.counting import RequestCounts


@dataclass(slots=True)
class TopicCounts:
    """Totals of a topic since the broker started; `Measurements` gives out copies. `bytes_in` and `bytes_out`: of keys
    and values. `archived_bytes`, `merged_bytes`, `compacted_bytes`: of the segments that this broker wrote, by
    reason."""

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    wal_puts: float = 0.0
    wal_bytes: float = 0.0
    cold_gets: int = 0
    archived_bytes: int = 0
    merged_bytes: int = 0
    compacted_bytes: int = 0


@dataclass(frozen=True)
class ColdFigures:
    """Sums over the manifests of one or more partitions. `raw_bytes`: of keys and values, uncompressed."""

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
    """The archive of a topic, as one broker knows it. `debt_bytes` of the `hot_bytes` are in no segment yet; the oldest
    of them is `debt_age_ms` old."""

    cold: ColdFigures = ColdFigures()
    hot_bytes: int = 0
    debt_bytes: int = 0
    debt_age_ms: int = 0

    @property
    def stored_bytes(self) -> int:
        """All bytes of the topic in the bucket, except manifests."""
        return self.hot_bytes + self.cold.cold_bytes + self.cold.garbage_bytes


@dataclass(frozen=True)
class TopicCost:
    """`requests` and `counts` since the broker started; `archive` now. `partitions`: how many of the topic are led
    here; `archive` covers those whose manifest is known (`archive.cold.partitions`)."""

    topic: str
    requests: RequestCounts
    counts: TopicCounts
    archive: TopicArchive
    partitions: int


@dataclass(frozen=True)
class BrokerCosts:
    """The costs of one broker. `rest`: requests of no topic. `shards`: led here, of `shards_total` in the cluster. The
    requests were counted from `since_ms` to `now_ms` (since 1970 UTC)."""

    broker_id: str
    store_url: str
    since_ms: int
    now_ms: int
    shards: Sequence[int]
    shards_total: int
    topics: Sequence[TopicCost]
    rest: RequestCounts
