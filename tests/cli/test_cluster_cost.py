"""`tidelog cluster cost` with one broker, and with a cluster in which one broker does not answer."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.cli.conftest import Tidelog
from tests.end_to_end.broker_process import BrokerProcess

from tidelog.client import Admin
from tidelog.services.cli.cost_json import CostDocument
from tidelog.services.cli.exit_codes import USAGE


def document(output: bytes) -> CostDocument:
    return msgspec.json.decode(output, type=CostDocument)


@pytest.fixture
def produced(tidelog: Tidelog) -> None:
    assert tidelog("topic", "produce", "costly", stdin=b"line\n" * 1_000).returncode == 0


@pytest.mark.usefixtures("produced")
def test_a_table_shows_each_topic_and_the_requests_of_no_topic(tidelog: Tidelog) -> None:
    run = tidelog("cluster", "cost")
    shown = run.stdout.decode()
    assert run.returncode == 0, run.stderr
    assert "S3 Standard, us-east-1" in shown
    assert len([line for line in shown.splitlines() if line.startswith("costly ")]) == 2
    assert "(no topic)" in shown
    assert b"no month is estimated: these brokers have counted for less than an hour" in run.stderr


@pytest.mark.usefixtures("produced")
def test_json_has_the_counts_and_their_cost(tidelog: Tidelog, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('name = "dear"\nput_usd_per_1000 = 5000\n')
    run = tidelog("cluster", "cost", "--json", "--prices", str(prices))
    found = document(run.stdout)
    (costly,) = (line for line in found.topics if line.figures.topic == "costly")
    assert (found.prices.name, found.prices.put_usd, found.silent) == ("dear", 5.0, ())
    assert costly.figures.records_in >= 1_000
    assert costly.requests_usd == pytest.approx(costly.figures.requests.puts * 5.0, rel=1e-3)
    assert (found.young, costly.month_usd) == (found.brokers, None)
    assert costly.figures.requests.puts == round(costly.figures.requests.puts, 3)
    assert found.total.requests_usd >= costly.requests_usd


def test_a_price_table_that_is_none_is_bad_input(tidelog: Tidelog, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("put = 1\n")
    run = tidelog("cluster", "cost", "--prices", str(prices))
    assert run.returncode == USAGE
    assert b"put" in run.stderr


def test_a_broker_alone_has_all_the_numbers(broker: BrokerProcess) -> None:
    with Admin(broker.url) as admin:
        found = admin.cluster_cost()
    assert (len(found.brokers), found.silent, found.shards_without_numbers) == (1, (), 0)
