"""`tidelog topic segments`: the Parquet objects that hold a topic's archived records, each record once.

A segment holds records of many partitions. For a grace, the topic's folder also holds segments that were merged or
expired. A reader that opens Parquet without Tidelog and needs each record once takes this list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import print_json, print_table, size_text, time_text
from tidelog.services.cli.options import JsonOption, TopicArgument

if TYPE_CHECKING:
    from tidelog.client import TopicLogDescription


def segments(
    broker: BrokerChoice,
    topic: TopicArgument,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Only segments with records of this partition.", min=0)
    ] = None,
    spans: Annotated[bool, typer.Option("--spans", help="Print the offsets of each partition in them.")] = False,
    urls: Annotated[bool, typer.Option("--urls", help="Print only URLs, one per line, for other readers.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the Parquet segments that hold a topic's archived records, each record once.

    [dim]tidelog topic segments web --urls[/dim]
    """
    from tidelog.client import TopicLogRequest

    with broker.admin() as admin:
        log = admin.topic_log(topic, TopicLogRequest(partitions=None if partition is None else (partition,)))
    if as_json:
        print_json(log)
    elif urls:
        for segment in log.segments:
            print(f"{log.store.rstrip('/')}/{segment.key}")
    elif spans:
        _print_spans(log)
    else:
        _print_segments(log)


def _print_segments(log: TopicLogDescription) -> None:
    columns = ("shard", "level", "partitions", "records", "size", "from", "to", "key")
    rows = [
        (
            segment.shard,
            segment.level,
            segment.partitions,
            segment.records,
            size_text(segment.size_bytes),
            time_text(segment.min_timestamp),
            time_text(segment.max_timestamp),
            segment.key,
        )
        for segment in log.segments
    ]
    print_table(columns, rows)


def _print_spans(log: TopicLogDescription) -> None:
    columns = ("partition", "first", "last", "records", "level", "key")
    rows = [
        (partition, span.base_offset, span.last_offset, span.records, segment.level, segment.key)
        for partition, found in log.spans().items()
        for segment, span in found
    ]
    print_table(columns, rows)
