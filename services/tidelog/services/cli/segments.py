"""`tidelog topic segments`: the Parquet objects that hold a topic's archived records, each record once.

For a grace, the topic's folder also holds segments that were merged or expired. A reader that opens Parquet without
Tidelog and needs each record once takes this list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import print_json, print_table, size_text, time_text
from tidelog.services.cli.options import JsonOption, TopicArgument

if TYPE_CHECKING:
    from tidelog.client import PartitionLogDescription


def segments(
    broker: BrokerChoice,
    topic: TopicArgument,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Only this partition.", min=0)] = None,
    urls: Annotated[bool, typer.Option("--urls", help="Print only URLs, one per line, for other readers.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the Parquet segments that hold a topic's archived records, each record once.

    [dim]tidelog topic segments web --urls[/dim]
    """
    with broker.admin() as admin:
        numbers = [part.partition for part in admin.topic(topic).partitions] if partition is None else [partition]
        logs = [admin.partition_log(topic, number) for number in numbers]
    if as_json:
        print_json(logs)
    elif urls:
        for log in logs:
            for segment in log.segments:
                print(f"{log.store.rstrip('/')}/{segment.key}")
    else:
        _print_table(logs)


def _print_table(logs: list[PartitionLogDescription]) -> None:
    columns = ("partition", "first", "last", "records", "size", "from", "to", "key")
    rows = [
        (
            log.partition,
            segment.base_offset,
            segment.last_offset,
            segment.records,
            size_text(segment.size_bytes),
            time_text(segment.min_timestamp),
            time_text(segment.max_timestamp),
            segment.key,
        )
        for log in logs
        for segment in log.segments
    ]
    print_table(columns, rows)
