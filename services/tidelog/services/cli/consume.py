"""`tidelog topic consume TOPIC`: records to stdout, as kcat prints them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.console import complain
from tidelog.services.cli.line_format import VALUES_ONLY
from tidelog.services.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, TopicArgument
from tidelog.storage.errors import OutOfRange

if TYPE_CHECKING:
    from tidelog.client import Batch, Consumer

Render = Callable[["Batch"], bytes | memoryview]

FETCH_BYTES = 4 << 20
"""Of one fetch: as fast as larger ones, and small in memory."""


StartOption = Annotated[
    str, typer.Option("--offset", "-o", help="Where to begin, in each partition.", metavar="start|end|N|-N|@TIME")
]
CountOption = Annotated[int | None, typer.Option("--count", "-n", help="Stop after so many records.", min=0)]
ExitOption = Annotated[
    bool, typer.Option("--exit", "-e", help="Stop at the end that the log has now, instead of following it.")
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        help="kcat's letters: %t topic, %p partition, %o offset, %T time in ms, %k key, %v value, %h headers, "
        "%K and %V lengths.",
        metavar="FORMAT",
    ),
]
PartitionsOption = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only this partition. Repeatable.", min=0)
]


def consume(
    topic: TopicArgument,
    start: StartOption = "start",
    count: CountOption = None,
    exit_at_end: ExitOption = False,
    line_format: FormatOption = VALUES_ONLY,
    partitions: PartitionsOption = None,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Print records from the oldest on and follow the log: by default each value and a newline.

    An offset (-o N) beyond the end of every partition is an error, exit code 2.
    If some partitions end before N, these are read from their end on; stderr says so.

    [dim]tidelog topic consume web -o start -e > access.log
    tidelog topic consume web -o -10 -n 10 -f '%t %p %o %k %v\\n'[/dim]
    """
    from tidelog.client import Consumer, ConsumerOptions
    from tidelog.services.cli.rendering import renderer

    options = ConsumerOptions(max_bytes=FETCH_BYTES)
    render = renderer(topic, line_format, as_json=as_json)
    with (
        open(
            sys.stdout.fileno(), "wb", closefd=False
        ) as output,  # sys.stdout.buffer may be unbuffered: it writes short
        Consumer(broker, topic, partitions=partitions, start=start, options=options) as consumer,
    ):
        if start.isdigit():
            _check_not_beyond(consumer)
        elif start.startswith("@"):
            _tell_if_nothing_is_so_late(consumer, start)
        for batch in _bounded(consumer, count, follow=not exit_at_end):
            output.write(render(batch))
            output.flush()


def _check_not_beyond(consumer: Consumer) -> None:
    """Begin at the end of each partition that ends before the offset asked for. `OutOfRange` if all do: a mistyped
    offset would wait for ever."""
    ends = consumer.end_offsets()
    beyond = {partition: offset for partition, offset in consumer.positions.items() if offset > ends[partition]}
    if not beyond:
        return
    last_end = max(ends.values())
    if len(beyond) == len(ends):
        asked = next(iter(beyond.values()))
        raise OutOfRange(
            f"offset {asked} is beyond the end of {consumer.topic}: its longest partition ends at {last_end}. Say "
            "-o end to wait for what comes next, or -o -N for the last N records",
            log_start_offset=0,
            high_watermark=last_end,
        )
    for partition, offset in sorted(beyond.items()):
        end = ends[partition]
        complain(f"{consumer.topic}/{partition} ends at offset {end}, before {offset}: it is read from its end on")
        consumer.seek(partition, end)


def _tell_if_nothing_is_so_late(consumer: Consumer, start: str) -> None:
    ends = consumer.end_offsets()
    if all(offset >= ends[partition] for partition, offset in consumer.positions.items()):
        complain(f"no record of {consumer.topic} is at or after {start[1:]} yet: only what comes next is read")


def _bounded(consumer: Consumer, count: int | None, *, follow: bool) -> Iterator[Batch]:
    """Batches until `count` records were given."""
    left = count
    if left == 0:
        return
    for batch in consumer.batches(follow=follow):
        if left is None:
            yield batch
            continue
        yield replace(batch, records=batch.records.slice(0, left))
        left -= min(left, batch.records.num_rows)
        if not left:
            return
