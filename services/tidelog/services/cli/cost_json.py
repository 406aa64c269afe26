"""The JSON of `tidelog cluster cost --json`: the counts of the brokers, and their cost by a price table.

Dollars have four significant digits. Ratios and numbers of requests have three decimals: a topic's share of a request
that several topics share is a fraction.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from msgspec.structs import replace

from tidelog.client.costs import OBSERVED_S_MIN, ClusterCost, TopicCostDescription
from tidelog.client.prices import PriceTable
from tidelog.storage.stores.counting import RequestCounts


@dataclass(frozen=True)
class TopicCostLine:
    """One topic, or all topics: `figures` as the brokers counted them, and the dollars and ratios made of them."""

    figures: TopicCostDescription
    requests_usd: float
    usd_per_gb_written: float | None
    stored_usd_month: float
    month_usd: float | None
    write_amplification: float | None
    compaction_ratio: float | None
    compression_ratio: float | None


@dataclass(frozen=True)
class CostDocument:
    """The numbers of `brokers`; those in `silent` did not answer. A broker in `young` has counted for less than
    `observed_s_min`; `month_usd` is null while there is one."""

    prices: PriceTable
    brokers: tuple[str, ...]
    silent: tuple[str, ...]
    young: tuple[str, ...]
    observed_s_min: float
    shards_without_numbers: int
    total: TopicCostLine
    topics: tuple[TopicCostLine, ...]
    rest: RequestCounts


def cost_document(found: ClusterCost, prices: PriceTable) -> CostDocument:
    """The document of `found` at `prices`."""
    return CostDocument(
        prices=prices,
        brokers=tuple(broker.broker for broker in found.brokers),
        silent=found.silent,
        young=tuple(broker.broker for broker in found.young),
        observed_s_min=OBSERVED_S_MIN,
        shards_without_numbers=found.shards_without_numbers,
        total=_line(found, found.total, prices),
        topics=tuple(_line(found, topic, prices) for topic in found.topics),
        rest=_rounded(found.rest),
    )


def _line(found: ClusterCost, topic: TopicCostDescription, prices: PriceTable) -> TopicCostLine:
    return TopicCostLine(
        figures=replace(topic, requests=_rounded(topic.requests)),
        requests_usd=_usd(topic.usd(prices)) or 0.0,
        usd_per_gb_written=_usd(topic.usd_per_gb_written(prices)),
        stored_usd_month=_usd(topic.stored_usd_month(prices)) or 0.0,
        month_usd=_usd(found.month_usd(topic, prices)),
        write_amplification=_ratio(topic.write_amplification),
        compaction_ratio=_ratio(topic.compaction_ratio),
        compression_ratio=_ratio(topic.compression_ratio),
    )


def _rounded(requests: RequestCounts) -> RequestCounts:
    return RequestCounts(**{each.name: round(getattr(requests, each.name), 3) for each in fields(requests)})


def _usd(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
