"""What a broker, or a cluster of them, costs: counted by brokers, priced here by whatever table one has.

    with Admin("http://127.0.0.1:8080") as admin:
        cost = admin.cluster_cost()
    for topic in cost.topics:
        print(topic.topic, topic.usd(S3_STANDARD), topic.usd_per_gb_written(S3_STANDARD))

A month has 30 days, a gigabyte written 10^9 bytes, a gigabyte stored what price lists take it for (2^30 bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from tidelog.client.prices import PriceTable
from tidelog.storage.stores.counting import NO_REQUESTS, RequestCounts

MONTH_S = 30 * 86_400
GB_BYTES = 10**9
OBSERVED_S_MIN = 3_600.0
"""A month is estimated from no less. A broker that has just started asks for much that it will not ask for again."""


@dataclass(frozen=True)
class TopicCostDescription:
    """One topic. Since the broker started: `requests`, records and bytes (of keys and values) produced, bytes of
    segments written from the WAL, by merging and by compaction. Now: what lies in the bucket. Sizes in bytes.

    `debt_bytes` of the `hot_bytes` (the WAL) are in no segment yet, the oldest since `debt_age_ms`. Garbage has left
    its manifest and waits for its deletion. Compaction went over `clean_offsets` and left `clean_records`."""

    topic: str
    requests: RequestCounts = NO_REQUESTS
    records_in: int = 0
    bytes_in: int = 0
    archived_bytes: int = 0
    merged_bytes: int = 0
    compacted_bytes: int = 0
    partitions: int = 0
    partitions_known: int = 0
    hot_bytes: int = 0
    debt_bytes: int = 0
    debt_age_ms: int = 0
    segments: int = 0
    cold_records: int = 0
    cold_bytes: int = 0
    cold_raw_bytes: int = 0
    garbage_objects: int = 0
    garbage_bytes: int = 0
    clean_offsets: int = 0
    clean_records: int = 0

    def __add__(self, other: TopicCostDescription) -> TopicCostDescription:
        """The same topic, or all topics, of two brokers."""
        totals = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name not in ("topic", "debt_age_ms")
        }
        return TopicCostDescription(self.topic, debt_age_ms=max(self.debt_age_ms, other.debt_age_ms), **totals)

    @property
    def stored_bytes(self) -> int:
        """All that lies in the bucket for it, but for manifests."""
        return self.hot_bytes + self.cold_bytes + self.garbage_bytes

    @property
    def write_amplification(self) -> float | None:
        """Bytes of segments written, a byte that came from the WAL; None if none did."""
        written = self.archived_bytes + self.merged_bytes + self.compacted_bytes
        return written / self.archived_bytes if self.archived_bytes else None

    @property
    def compaction_ratio(self) -> float | None:
        """How many records of those that compaction went over are left, 1 is all; None if it went over none."""
        return self.clean_records / self.clean_offsets if self.clean_offsets else None

    @property
    def compression_ratio(self) -> float | None:
        """Bytes of segments for a byte of keys and values; None without segments."""
        return self.cold_bytes / self.cold_raw_bytes if self.cold_raw_bytes else None

    def usd(self, prices: PriceTable) -> float:
        """All requests since the broker started."""
        return prices.requests_usd(self.requests)

    def usd_per_gb_written(self, prices: PriceTable) -> float | None:
        """Requests, for each GB of keys and values produced; None if none was."""
        return self.usd(prices) / (self.bytes_in / GB_BYTES) if self.bytes_in else None

    def stored_usd_month(self, prices: PriceTable) -> float:
        """What lies there, for a month."""
        return prices.stored_month_usd(self.stored_bytes)


@dataclass(frozen=True)
class CostDescription:
    """One broker's own numbers. `rest`: requests that are no topic's. Requests were counted from `since_ms`, when it
    started, to `now_ms`; it leads `shards` of the cluster's `shards_total`."""

    broker: str
    store: str
    since_ms: int
    now_ms: int
    shards: tuple[int, ...]
    shards_total: int
    topics: tuple[TopicCostDescription, ...]
    rest: RequestCounts = NO_REQUESTS

    @property
    def observed_s(self) -> float:
        """How long it has counted."""
        return (self.now_ms - self.since_ms) / 1_000

    def month_requests_usd(self, requests: RequestCounts, prices: PriceTable) -> float | None:
        """What a month of `requests` costs if they go on as since the start; None before `OBSERVED_S_MIN`."""
        if self.observed_s < OBSERVED_S_MIN:
            return None
        return prices.requests_usd(requests) * MONTH_S / self.observed_s


@dataclass(frozen=True)
class ClusterCost:
    """The numbers of all brokers that answered, at least one; `silent` are the ids of those that did not."""

    brokers: tuple[CostDescription, ...]
    silent: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[TopicCostDescription, ...]:
        """By name, summed over brokers."""
        found: dict[str, TopicCostDescription] = {}
        for broker in self.brokers:
            for topic in broker.topics:
                found[topic.topic] = found[topic.topic] + topic if topic.topic in found else topic
        return tuple(found[name] for name in sorted(found))

    @property
    def rest(self) -> RequestCounts:
        """The requests that are no topic's."""
        return sum((broker.rest for broker in self.brokers), NO_REQUESTS)

    @property
    def total(self) -> TopicCostDescription:
        """All topics, and the requests that are no topic's."""
        return sum(self.topics, TopicCostDescription("", requests=self.rest))

    @property
    def shards_without_numbers(self) -> int:
        """Shards that no broker that answered leads: what lies there of them is not in any number."""
        led = {shard for broker in self.brokers for shard in broker.shards}
        return max(broker.shards_total for broker in self.brokers) - len(led)

    @property
    def young(self) -> tuple[CostDescription, ...]:
        """Brokers that have not counted for `OBSERVED_S_MIN` yet, so that no month can be estimated."""
        return tuple(broker for broker in self.brokers if broker.observed_s < OBSERVED_S_MIN)

    def rest_month_usd(self, prices: PriceTable) -> float | None:
        """A month of the requests that are no topic's; None while a broker is `young`."""
        return _total([broker.month_requests_usd(broker.rest, prices) for broker in self.brokers])

    def month_usd(self, topic: TopicCostDescription, prices: PriceTable) -> float | None:
        """A month of one of `topics`, or of `total`: its requests as since each broker's start, and what lies there.
        None while a broker is `young`."""
        asked = [
            broker.month_requests_usd(requests, prices)
            for broker in self.brokers
            for requests in (NO_REQUESTS, *_requests_of(broker, topic.topic))
        ]
        return _total([*asked, topic.stored_usd_month(prices)])


def _total(parts: Sequence[float | None]) -> float | None:
    """The sum; None if a part is unknown."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _requests_of(broker: CostDescription, topic: str) -> Iterable[RequestCounts]:
    """Of one topic; without a name, all there are."""
    if not topic:
        yield broker.rest
    yield from (found.requests for found in broker.topics if topic in ("", found.topic))
