"""`tidelog topic consume TOPIC`: prints records to stdout, as kcat does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import complain
from tidelog.services.cli.options import JsonOption, TopicArgument
from tidelog.services.cli.record_format import VALUES_ONLY, renderer
from tidelog.storage.errors import OutOfRange

if TYPE_CHECKING:
    from tidelog.client import Batch, Consumer

FETCH_BYTES = 4 << 20
"""Size of one fetch: as fast as larger ones, with little memory."""

StartOption = Annotated[
    str, typer.Option("--offset", "-o", help="Where to begin, in each partition.", metavar="start|end|N|-N|@TIME")
]
CountOption = Annotated[int | None, typer.Option("--count", "-n", help="Stop after this many records.", min=0)]
ExitOption = Annotated[
    bool, typer.Option("--exit", "-e", help="Stop at the present end of the log, instead of following it.")
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
    broker: BrokerChoice,
    topic: TopicArgument,
    start: StartOption = "start",
    count: CountOption = None,
    exit_at_end: ExitOption = False,
    line_format: FormatOption = VALUES_ONLY,
    partitions: PartitionsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print records from the oldest on and follow the log: by default each value and a newline.

    An offset (-o N) beyond the end of every partition is an error, exit code 2.
    If only some partitions end before N, those are read from their end on; stderr names them.

    [dim]tidelog topic consume web -o start -e > access.log
    tidelog topic consume web -o -10 -n 10 -f '%t %p %o %k %v\\n'[/dim]
    """
    from tidelog.client import Consumer, ConsumerOptions

    options = ConsumerOptions(max_bytes=FETCH_BYTES)
    render = renderer(topic, line_format, as_json=as_json)
    with (
        open(sys.stdout.fileno(), "wb", closefd=False) as output,  # an unbuffered sys.stdout.buffer may write less
        Consumer(broker.access(), topic, partitions=partitions, start=start, options=options) as consumer,
    ):
        if start.isdigit():
            _check_not_beyond(consumer)
        elif start.startswith("@"):
            _complain_if_all_is_earlier(consumer, start)
        for batch in _bounded(consumer, count, follow=not exit_at_end):
            output.write(render(batch))
            output.flush()


def _check_not_beyond(consumer: Consumer) -> None:
    """Begin at the end of each partition that ends before the requested offset. `OutOfRange` if all do: the command
    would wait for ever at an offset that was mistyped."""
    ends = consumer.end_offsets()
    beyond = {partition: offset for partition, offset in consumer.positions.items() if offset > ends[partition]}
    if beyond and len(beyond) == len(ends):
        last_end = max(ends.values())
        raise OutOfRange(
            f"offset {max(beyond.values())} is beyond the end of {consumer.topic}: its longest partition ends at "
            f"{last_end}. Use -o end to wait for new records, or -o -N for the last N records",
            log_start_offset=0,
            high_watermark=last_end,
        )
    for partition, offset in sorted(beyond.items()):
        end = ends[partition]
        complain(f"{consumer.topic}/{partition} ends at offset {end}, before {offset}: it is read from its end on")
        consumer.seek(partition, end)


def _complain_if_all_is_earlier(consumer: Consumer, start: str) -> None:
    ends = consumer.end_offsets()
    if all(offset >= ends[partition] for partition, offset in consumer.positions.items()):
        complain(f"no record of {consumer.topic} is at or after {start[1:]} yet: only new records are read")


def _bounded(consumer: Consumer, count: int | None, *, follow: bool) -> Iterator[Batch]:
    """Batches with `count` records in all; None: without a bound."""
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
