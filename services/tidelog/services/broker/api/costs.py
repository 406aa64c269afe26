"""What a broker's work costs: requests by topic, and what lies in the bucket for it. Values; `request_shares` has the
sums behind them, whoever asks knows the prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.services.broker.archive.topic_archive import TopicArchive
from tidelog.services.broker.telemetry.topic_counts import TopicCounts
from tidelog.storage.stores.counting import RequestCounts


@dataclass(frozen=True)
class TopicCost:
    """`requests` and the totals in `counts` are since the broker started; `archive` is now. `partitions`: how many of
    the topic's are led here; figures are of those whose manifest is known (`archive.cold.partitions`)."""

    topic: str
    requests: RequestCounts
    counts: TopicCounts
    archive: TopicArchive
    partitions: int


@dataclass(frozen=True)
class BrokerCosts:
    """One broker's. `rest`: the requests that are no topic's. `shards` led here, of `shards_total` in the cluster.
    Times in ms since 1970 UTC: the requests were counted from `since_ms` to `now_ms`."""

    broker_id: str
    store_url: str
    since_ms: int
    now_ms: int
    shards: Sequence[int]
    shards_total: int
    topics: Sequence[TopicCost]
    rest: RequestCounts
