"""What `tidelog cluster cost --json` prints: the numbers of the brokers, and what they come to at a price table."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.client.costs import ClusterCost, TopicCostDescription
from tidelog.storage.stores.counting import PriceTable, RequestCounts


@dataclass(frozen=True)
class TopicCostLine:
    """One topic, or all: `figures` as the brokers counted them, dollars and ratios made of them."""

    figures: TopicCostDescription
    requests_usd: float
    usd_per_gb_written: float | None
    stored_usd_month: float
    month_usd: float
    write_amplification: float | None
    compaction_ratio: float | None
    compression_ratio: float | None


@dataclass(frozen=True)
class CostDocument:
    """`brokers` are those whose numbers are in it, `silent` those that did not answer."""

    prices: PriceTable
    brokers: tuple[str, ...]
    silent: tuple[str, ...]
    shards_without_numbers: int
    total: TopicCostLine
    topics: tuple[TopicCostLine, ...]
    rest: RequestCounts


def cost_document(found: ClusterCost, prices: PriceTable) -> CostDocument:
    """Pure."""
    return CostDocument(
        prices=prices,
        brokers=tuple(broker.broker for broker in found.brokers),
        silent=found.silent,
        shards_without_numbers=found.shards_without_numbers,
        total=_line(found, found.total, prices),
        topics=tuple(_line(found, topic, prices) for topic in found.topics),
        rest=found.rest,
    )


def _line(found: ClusterCost, topic: TopicCostDescription, prices: PriceTable) -> TopicCostLine:
    return TopicCostLine(
        figures=topic,
        requests_usd=topic.usd(prices),
        usd_per_gb_written=topic.usd_per_gb_written(prices),
        stored_usd_month=topic.stored_usd_month(prices),
        month_usd=found.month_usd(topic, prices),
        write_amplification=topic.write_amplification,
        compaction_ratio=topic.compaction_ratio,
        compression_ratio=topic.compression_ratio,
    )
