"""`tidelog cluster cost`: shows what the cluster costs on a store with prices, from the counts of its brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import complain, print_facts, print_json, print_table, size_text
from tidelog.services.cli.options import JsonOption

if TYPE_CHECKING:
    from tidelog.client.costs import ClusterCost, TopicCostDescription
    from tidelog.client.prices import PriceTable

PricesOption = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        envvar="TIDELOG_PRICES",
        help="A price table, TOML. Default: S3 Standard.",
        metavar="FILE",
    ),
]
ORPHANS_HINT = "tidelog bucket sweep --dry-run"


def cost(broker: BrokerChoice, as_json: JsonOption = False, prices: PricesOption = None) -> None:
    """Show the cost of each topic: requests, hot and cold bytes, dollars per GB and month, unarchived bytes.

    The dollars per month are estimated from the requests since the brokers started, once each
    broker has counted for an hour.

    [dim]tidelog cluster cost --prices prices.toml[/dim]
    """
    from tidelog.client.prices import S3_STANDARD, read_prices

    table = S3_STANDARD if prices is None else read_prices(prices)
    with broker.admin() as admin:
        found = admin.cluster_cost()
    if as_json:
        from tidelog.services.cli.cost_json import cost_document

        print_json(cost_document(found, table))
    else:
        _print(found, table)
    if found.young:
        names = ", ".join(f"{young.broker} ({_duration(round(young.observed_s * 1_000))})" for young in found.young)
        complain(f"no month is estimated: these brokers have counted for less than an hour: {names}")
    for silent in found.silent:
        complain(f"broker {silent} does not answer: its requests are not in these numbers")


def _print(found: ClusterCost, prices: PriceTable) -> None:
    total = found.total
    print_facts(
        [
            ("prices", prices.name),
            (
                "counted by",
                ", ".join(f"{each.broker} ({_duration(each.now_ms - each.since_ms)})" for each in found.brokers),
            ),
            ("a month", _usd(found.month_usd(total, prices))),
            ("requests so far", _usd(total.usd(prices))),
            ("stored", f"{size_text(total.stored_bytes)}, {_usd(total.stored_usd_month(prices))} a month"),
            ("not archived yet", f"{size_text(total.debt_bytes)}, for {_duration(total.debt_age_ms)}"),
            ("garbage", f"{size_text(total.garbage_bytes)} wait for deletion; orphans: {ORPHANS_HINT}"),
        ]
    )
    if total.partitions_known < total.partitions or found.shards_without_numbers:
        unknown = total.partitions - total.partitions_known
        complain(f"not in these bytes: {unknown} partitions, {found.shards_without_numbers} shards without a leader")
    print()
    print_table(
        _REQUEST_COLUMNS, [_request_row(found, topic, prices) for topic in found.topics] + [_rest_row(found, prices)]
    )
    print()
    print_table(_STORED_COLUMNS, [_stored_row(topic) for topic in found.topics])


_REQUEST_COLUMNS = ("topic", "put", "get", "list", "delete", "written", "$/GB written", "$/month")
_STORED_COLUMNS = ("topic", "hot", "cold", "of raw", "segments", "garbage", "not cold yet", "age", "write amp", "kept")


def _request_row(found: ClusterCost, topic: TopicCostDescription, prices: PriceTable) -> tuple[object, ...]:
    asked = topic.requests
    return (
        topic.topic,
        round(asked.puts),
        round(asked.gets),
        round(asked.lists),
        round(asked.deletes),
        size_text(topic.bytes_in),
        _usd(topic.usd_per_gb_written(prices)),
        _usd(found.month_usd(topic, prices)),
    )


def _rest_row(found: ClusterCost, prices: PriceTable) -> tuple[object, ...]:
    asked = found.rest
    counts = (round(asked.puts), round(asked.gets), round(asked.lists), round(asked.deletes))
    return ("(no topic)", *counts, None, None, _usd(found.rest_month_usd(prices)))


def _stored_row(topic: TopicCostDescription) -> tuple[object, ...]:
    return (
        topic.topic,
        size_text(topic.hot_bytes),
        size_text(topic.cold_bytes),
        _ratio(topic.compression_ratio),
        topic.segments,
        size_text(topic.garbage_bytes),
        size_text(topic.debt_bytes),
        _duration(topic.debt_age_ms),
        _ratio(topic.write_amplification),
        _ratio(topic.compaction_ratio),
    )


def _usd(value: float | None) -> str | None:
    """Two significant digits below a dollar, cents above."""
    if value is None:
        return None
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.2g}"


def _ratio(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _duration(milliseconds: int) -> str:
    seconds = milliseconds / 1_000
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"
