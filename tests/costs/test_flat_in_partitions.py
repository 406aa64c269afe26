"""The bill does not know partitions: requests at the price of a PUT, with archiving, upkeep and floor, in virtual
time."""

from __future__ import annotations

from dataclasses import replace

from tests.coordinator.virtual_time import virtually
from tests.costs.measured import SteadyLoad, measure

from tidelog.storage.stores.counting import Kind

LOAD = SteadyLoad(shards=2, partitions=4, events_per_request=20, minutes=2.5)


@virtually
async def test_a_thousand_partitions_cost_what_four_do_and_a_hundred_topics_at_most_twice_as_much() -> None:
    few = await measure(LOAD)
    partitions = await measure(replace(LOAD, partitions=1_000))
    topics = await measure(replace(LOAD, topics=100, partitions=10))
    assert partitions.puts_per_gb <= 1.25 * few.puts_per_gb
    assert partitions.by_kind[Kind.SEGMENT].puts == few.by_kind[Kind.SEGMENT].puts > 0
    assert few.puts_per_gb < topics.puts_per_gb <= 2 * few.puts_per_gb


@virtually
async def test_a_quiet_cluster_pays_at_most_twice_what_its_log_costs() -> None:
    """A thousand partitions get a record a second in all, for an hour."""
    quiet = SteadyLoad(partitions=1_000, events_per_request=1, minutes=60.0, every_s=1.0, busy_shards=1)
    counted = await measure(quiet)
    log = counted.by_kind[Kind.WAL].puts
    assert 3_600 <= log < 4_000
    assert counted.all.puts + counted.all.lists <= 2 * log
