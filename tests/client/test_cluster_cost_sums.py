"""Costs are summed over brokers and priced by pure functions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidelog.client.costs import MONTH_S, OBSERVED_S_MIN, ClusterCost, CostDescription, TopicCostDescription
from tidelog.client.prices import S3_STANDARD, PriceTable
from tidelog.storage.stores.counting import NO_REQUESTS, RequestCounts

PRICES = PriceTable(put_usd=0.01, get_usd=0.001, list_usd=0.01, head_usd=0.001, stored_gb_month_usd=2.0)
DAY_MS = 86_400_000


def broker(
    name: str, *topics: TopicCostDescription, days: float = 1.0, shards: tuple[int, ...] = (0,)
) -> CostDescription:
    rest = RequestCounts(puts=10)
    return CostDescription(
        broker=name,
        store="s3://b",
        since_ms=0,
        now_ms=int(days * DAY_MS),
        shards=shards,
        shards_total=2,
        topics=topics,
        rest=rest,
    )


def numbers(requests: RequestCounts = NO_REQUESTS, **counted: int) -> TopicCostDescription:
    """Those of the topic t; 0 where they are not given."""
    return replace(TopicCostDescription.summed("t", ()), requests=requests, **counted)


def test_a_topic_is_summed_over_brokers_and_its_debt_is_as_old_as_the_oldest() -> None:
    one = numbers(RequestCounts(puts=1), bytes_in=10, debt_age_ms=5, cold_bytes=7)
    two = numbers(RequestCounts(puts=2), bytes_in=20, debt_age_ms=3, hot_bytes=4)
    (summed,) = ClusterCost((broker("a", one), broker("b", two))).topics
    assert (summed.requests.puts, summed.bytes_in, summed.debt_age_ms, summed.stored_bytes) == (3, 30, 5, 11)


def test_a_month_continues_as_each_broker_did_since_it_started() -> None:
    old = broker("a", numbers(RequestCounts(puts=300)), days=10)
    young = broker("b", numbers(RequestCounts(puts=30)), days=1)
    found = ClusterCost((old, young))
    month = 30 * (300 / 10 + 30 / 1) * PRICES.put_usd
    assert found.month_usd(found.topics[0], PRICES) == pytest.approx(month)
    rest = 30 * (10 / 10 + 10 / 1) * PRICES.put_usd
    assert found.rest_month_usd(PRICES) == pytest.approx(rest)
    assert found.month_usd(found.total, PRICES) == pytest.approx(month + rest)


def test_storage_is_part_of_the_month() -> None:
    found = ClusterCost((broker("a", numbers(hot_bytes=1 << 29, cold_bytes=1 << 30, garbage_bytes=1 << 29)),))
    assert found.topics[0].stored_usd_month(PRICES) == pytest.approx(4.0)
    assert found.month_usd(found.topics[0], PRICES) == pytest.approx(4.0)


def test_dollars_a_gigabyte_are_those_of_requests() -> None:
    topic = numbers(RequestCounts(puts=1_000, gets=1_000), bytes_in=2 * 10**9)
    assert topic.usd_per_gb_written(S3_STANDARD) == pytest.approx((0.005 + 0.0004) / 2)
    assert numbers().usd_per_gb_written(S3_STANDARD) is None


def test_ratios_say_what_was_written_again_and_what_is_left() -> None:
    topic = numbers(
        archived_bytes=100,
        merged_bytes=150,
        compacted_bytes=50,
        cold_bytes=30,
        cold_raw_bytes=120,
        clean_offsets=10,
        clean_records=4,
    )
    assert (topic.write_amplification, topic.compaction_ratio, topic.compression_ratio) == (3.0, 0.4, 0.25)
    nothing = numbers()
    assert (nothing.write_amplification, nothing.compaction_ratio, nothing.compression_ratio) == (None, None, None)


def test_shards_that_nobody_told_of_are_counted() -> None:
    assert ClusterCost((broker("a"),), ("b",)).shards_without_numbers == 1
    assert ClusterCost((broker("a"), broker("b", shards=(1,)))).shards_without_numbers == 0


def test_no_month_is_estimated_before_every_broker_has_counted_for_long_enough() -> None:
    topic = numbers(RequestCounts(puts=1), cold_bytes=1 << 30)
    hour = OBSERVED_S_MIN / 86_400
    young, old = broker("a", topic, days=hour * 0.99), broker("b", topic, days=hour)
    found = ClusterCost((young, old))
    assert found.young == (young,)
    assert (found.month_usd(found.topics[0], PRICES), found.rest_month_usd(PRICES)) == (None, None)
    assert found.topics[0].stored_usd_month(PRICES) == pytest.approx(4.0), "what lies there is known at once"
    alone = ClusterCost((old,))
    requests = MONTH_S / OBSERVED_S_MIN * PRICES.put_usd
    assert alone.month_usd(alone.topics[0], PRICES) == pytest.approx(requests + 2.0)
