"""docs/cost.md shows the results of the formulas, the formulas agree with counted requests, and the prices with the
code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.coordinator.virtual_time import virtually
from tests.costs.measured import SteadyLoad, measure
from tests.costs.model import Workload, archive_requests, wal_requests
from tests.costs.page_tables import (
    facts,
    grace_rows,
    month_rows,
    puts_per_gb_rows,
    request_rows,
    variation_rows,
    year_rows,
)

from tidelog.client.prices import S3_STANDARD, read_prices
from tidelog.services.broker.archive.archive_policy import MANIFEST_PUTS
from tidelog.services.settings.settings import Settings
from tidelog.storage.stores.counting import Kind

PAGE = (Path(__file__).parents[2] / "docs/cost.md").read_text()
FLOWING = " ".join(PAGE.split())


TABLES = (request_rows(), puts_per_gb_rows(), grace_rows(), month_rows(), variation_rows(), year_rows())


@pytest.mark.parametrize("row", [row for table in TABLES for row in table])
def test_a_row_of_the_page_is_what_the_formulas_give(row: str) -> None:
    assert row in PAGE.splitlines()


@pytest.mark.parametrize("fact", [*facts()])
def test_a_figure_in_the_text_is_what_the_formulas_give(fact: str) -> None:
    assert fact in FLOWING


def test_the_prices_on_the_page_are_those_of_the_table() -> None:
    assert f"| PUT, COPY, POST, LIST | {S3_STANDARD.put_usd * 1_000:g} USD per 1,000 |" in PAGE
    assert S3_STANDARD.list_usd == S3_STANDARD.put_usd
    assert f"| {S3_STANDARD.get_usd * 1_000:g} USD per 1,000; free |" in PAGE
    assert S3_STANDARD.delete_usd == 0
    assert f"| {S3_STANDARD.stored_gb_month_usd:g} USD per GB and month |" in PAGE


def test_the_pages_price_file_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(PAGE.partition("```toml\n")[2].partition("```")[0])
    assert read_prices(file).name == "S3 Standard, eu-central-1"


@virtually
async def test_a_broker_asks_for_no_more_than_the_formulas_say() -> None:
    counted = await measure(SteadyLoad(shards=2, partitions=4, events_per_request=60, minutes=2.5))
    load = Workload(counted.raw_bytes / counted.seconds, counted.load.shards)
    # plus the pass that archives the rest at the end
    seconds = counted.seconds + Settings().archiver_interval_ms / 1_000
    wal, archive = wal_requests(load, Settings(), seconds), archive_requests(load, Settings(), seconds)
    found = counted.by_kind
    assert 0 < found[Kind.WAL].puts <= wal.puts
    assert 0 < found[Kind.WAL].gets <= wal.gets
    assert found[Kind.WAL].lists == 0, "nothing is deleted before the grace"
    assert 0 < found[Kind.SEGMENT].puts + found[Kind.MANIFEST].puts <= archive.puts
    assert found[Kind.MANIFEST].heads <= archive.heads
    assert found[Kind.MANIFEST].lists <= 2 * load.shards, "a leader and its log look for the manifest once each"
    assert found[Kind.SEGMENT].gets == 0, "nothing was read but what was archived"


@virtually
async def test_archiving_many_topics_of_little_traffic_at_most_doubles_the_puts() -> None:
    """Each topic gets a request in 40 s; a pass per minute would make twice as many PUTs as the log."""
    load = SteadyLoad(shards=1, topics=200, partitions=1, events_per_request=1, minutes=5.0)
    counted = await measure(load)
    archiving = counted.by_kind[Kind.SEGMENT].puts + counted.by_kind[Kind.MANIFEST].puts
    the_last_pass = load.topics + MANIFEST_PUTS  # the rest is archived at once at the end
    assert 0 < archiving <= counted.by_kind[Kind.WAL].puts + the_last_pass
