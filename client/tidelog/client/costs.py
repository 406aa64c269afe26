"""The cost of a broker or a cluster: brokers count requests and bytes, and a `PriceTable` turns them into dollars.

    with Admin("http://127.0.0.1:8080") as admin:
        cost = admin.cluster_cost()
    for topic in cost.topics:
        print(topic.topic, topic.usd(S3_STANDARD), topic.usd_per_gb_written(S3_STANDARD))

A month has 30 days. A gigabyte written is 10^9 bytes; a gigabyte stored is 2^30 bytes, as in price lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.client.prices import PriceTable
from tidelog.storage.stores.counting import NO_REQUESTS, RequestCounts
from tidelog.wire import costs

MONTH_S = 30 * 86_400
GB_BYTES = 10**9
OBSERVED_S_MIN = 3_600.0
"""A month is not estimated from less, because a broker sends unusually many requests right after its start."""


class TopicCostDescription(costs.TopicCostDescription, frozen=True):
    """A topic's numbers, and ratios and prices computed from them."""

    @classmethod
    def summed(
        cls, topic: str, parts: Iterable[TopicCostDescription], requests: RequestCounts = NO_REQUESTS
    ) -> TopicCostDescription:
        """The numbers of one topic from several brokers, or of several topics, with `requests` beside theirs."""
        listed = list(parts)
        totals = {
            name: sum(getattr(part, name) for part in listed)
            for name in cls.__struct_fields__
            if name not in ("topic", "requests", "debt_age_ms")
        }
        return cls(
            topic=topic,
            requests=sum((part.requests for part in listed), requests),
            debt_age_ms=max((part.debt_age_ms for part in listed), default=0),
            **totals,
        )

    @property
    def stored_bytes(self) -> int:
        """The topic's bytes in the bucket, without manifests."""
        return self.hot_bytes + self.cold_bytes + self.garbage_bytes

    @property
    def write_amplification(self) -> float | None:
        """Bytes of segments written for each byte that was archived from the WAL; None if nothing was archived."""
        written = self.archived_bytes + self.merged_bytes + self.compacted_bytes
        return written / self.archived_bytes if self.archived_bytes else None

    @property
    def compaction_ratio(self) -> float | None:
        """The share of records that compaction kept (1: all of them); None before the first compaction."""
        return self.clean_records / self.clean_offsets if self.clean_offsets else None

    @property
    def compression_ratio(self) -> float | None:
        """Bytes of segments for each byte of keys and values; None without segments."""
        return self.cold_bytes / self.cold_raw_bytes if self.cold_raw_bytes else None

    def usd(self, prices: PriceTable) -> float:
        """The price of all requests since the broker started."""
        return prices.requests_usd(self.requests)

    def usd_per_gb_written(self, prices: PriceTable) -> float | None:
        """The price of requests for each GB of keys and values produced; None if nothing was produced."""
        return self.usd(prices) / (self.bytes_in / GB_BYTES) if self.bytes_in else None

    def stored_usd_month(self, prices: PriceTable) -> float:
        """The price of storing `stored_bytes` for a month."""
        return prices.stored_month_usd(self.stored_bytes)


class CostDescription(costs.CostDescription, frozen=True):
    """One broker's numbers."""

    topics: tuple[TopicCostDescription, ...]

    @property
    def observed_s(self) -> float:
        """How long the broker has counted."""
        return (self.now_ms - self.since_ms) / 1_000

    def month_requests_usd(self, requests: RequestCounts, prices: PriceTable) -> float | None:
        """The price of a month of `requests` at their rate since the start; None before `OBSERVED_S_MIN`."""
        if self.observed_s < OBSERVED_S_MIN:
            return None
        return prices.requests_usd(requests) * MONTH_S / self.observed_s


@dataclass(frozen=True)
class ClusterCost:
    """The numbers of all brokers that answered, at least one. `silent` are the ids of those that did not answer."""

    brokers: tuple[CostDescription, ...]
    silent: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[TopicCostDescription, ...]:
        """The topics by name, each summed over the brokers."""
        parts = [topic for broker in self.brokers for topic in broker.topics]
        names = sorted({topic.topic for topic in parts})
        return tuple(
            TopicCostDescription.summed(name, [topic for topic in parts if topic.topic == name]) for name in names
        )

    @property
    def rest(self) -> RequestCounts:
        """The requests that belong to no topic."""
        return sum((broker.rest for broker in self.brokers), NO_REQUESTS)

    @property
    def total(self) -> TopicCostDescription:
        """All topics, and the requests that belong to no topic."""
        return TopicCostDescription.summed("", self.topics, self.rest)

    @property
    def shards_without_numbers(self) -> int:
        """How many shards no answering broker leads. Their bytes are missing from these numbers."""
        led = {shard for broker in self.brokers for shard in broker.shards}
        return max(broker.shards_total for broker in self.brokers) - len(led)

    @property
    def young(self) -> tuple[CostDescription, ...]:
        """Brokers that have not counted for `OBSERVED_S_MIN` yet. Until they have, no month is estimated."""
        return tuple(broker for broker in self.brokers if broker.observed_s < OBSERVED_S_MIN)

    def rest_month_usd(self, prices: PriceTable) -> float | None:
        """A month of the requests that belong to no topic; None while a broker is `young`."""
        return _total([broker.month_requests_usd(broker.rest, prices) for broker in self.brokers])

    def month_usd(self, topic: TopicCostDescription, prices: PriceTable) -> float | None:
        """A month of one of `topics`, or of `total`: its requests at their rate since each broker's start, and its
        storage. None while a broker is `young`."""
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
    """The requests of one topic; all requests if `topic` is empty."""
    if not topic:
        yield broker.rest
    yield from (found.requests for found in broker.topics if topic in ("", found.topic))
