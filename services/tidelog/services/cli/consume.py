"""`tidelog topic consume TOPIC`: prints records to stdout, as kcat does."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import complain
from tidelog.services.cli.options import JsonOption, TopicArgument
from tidelog.services.cli.progress import Progress
from tidelog.services.cli.record_format import VALUES_ONLY, Render, renderer
from tidelog.storage.errors import Invalid, OutOfRange

if TYPE_CHECKING:
    from tidelog.client import Batch, Consumer
    from tidelog.services.cli.where.selection import Selection

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
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        help="Only records for which this is true: fields of value (JSON), key, headers, timestamp, offset, partition.",
        metavar="EXPRESSION",
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", "-g", help="Read as a member of this group: begin where it is, and commit what was printed."
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
    where: WhereOption = None,
    group: GroupOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print records from the oldest on and follow the log: by default each value and a newline.

    An offset (-o N) beyond the end of every partition is an error, exit code 2.
    If only some partitions end before N, those are read from their end on; stderr names them.
    With --group, -o says where to begin in partitions for which the group has no committed offset.

    [dim]tidelog topic consume web -o start -e > access.log
    tidelog topic consume web -o -10 -n 10 -f '%t %p %o %k %v\\n'
    tidelog topic consume web -e --where "value.status >= 500 and timestamp >= '2026-01-31'"
    tidelog topic consume web --group billing[/dim]
    """
    selection = None if where is None else _selection(where)
    if group is not None:
        if partitions:
            raise Invalid("the group assigns the partitions: leave -p out", field="partition")
        _consume_in_group(
            broker,
            topic,
            group,
            start,
            renderer(topic, line_format, as_json=as_json),
            count,
            selection,
            follow=not exit_at_end,
        )
        return
    from tidelog.client import Consumer, ConsumerOptions

    options = ConsumerOptions(max_bytes=FETCH_BYTES)
    render = renderer(topic, line_format, as_json=as_json)
    with (
        open(sys.stdout.fileno(), "wb", closefd=False) as output,  # an unbuffered sys.stdout.buffer may write less
        Consumer(broker.access(), topic, partitions=partitions, start=start, options=options) as consumer,
    ):
        if start.isdigit():
            _check_not_beyond(consumer, topic)
        elif start.startswith("@"):
            _complain_if_all_is_earlier(consumer, topic, start)
        follow = not exit_at_end
        with contextlib.ExitStack() as scanning:
            batches = (
                consumer.batches(follow=follow)
                if selection is None
                else scanning.enter_context(_scanned(broker, consumer, topic, selection, follow=follow))
            )
            for batch in _bounded(batches, count):
                output.write(render(batch))
                output.flush()


def _consume_in_group(
    broker: BrokerChoice,
    topic: str,
    group: str,
    start: str,
    render: Render,
    count: int | None,
    selection: Selection | None,
    *,
    follow: bool,
) -> None:
    from tidelog.client import Consumer
    from tidelog.services.cli.group_reading import GroupReading, group_options
    from tidelog.services.cli.stopping import StopBetweenSteps

    with StopBetweenSteps() as stopping:
        with (
            open(sys.stdout.fileno(), "wb", closefd=False) as output,
            Consumer(broker.access(), topic, group=group, start=start, options=group_options(FETCH_BYTES)) as consumer,
        ):
            for batch in GroupReading(consumer, stopping, selection, follow).batches(count):
                output.write(render(batch))
                output.flush()
        _tell_not_json(selection)
        stopping.raise_if_asked()


def _selection(where: str) -> Selection:
    from tidelog.services.cli.where.parser import parsed
    from tidelog.services.cli.where.selection import Selection

    return Selection(parsed(where))


@contextlib.contextmanager
def _scanned(
    broker: BrokerChoice, consumer: Consumer, topic: str, selection: Selection, *, follow: bool
) -> Iterator[Iterator[Batch]]:
    """The matching batches, with progress on stderr. In the end it says how many values are no JSON."""
    from tidelog.services.cli.where.scan import Scan

    with (
        broker.admin() as admin,
        Progress(f"reading {topic}", None, "match", writes_stdout=True, of_records=True) as progress,
    ):
        scan = Scan(consumer, admin, selection, follow, progress.advance)
        if scan.planned is not None:
            progress.expect(scan.planned)
        try:
            yield _shown(scan.batches(), progress)
        finally:
            _tell_not_json(selection)


def _tell_not_json(selection: Selection | None) -> None:
    if selection is not None and selection.not_json:
        complain(f"records that do not match because their value is no JSON: {selection.not_json:,}")


def _shown(batches: Iterator[Batch], progress: Progress) -> Iterator[Batch]:
    """The batches; the bar is hidden while the caller prints one."""
    for batch in batches:
        progress.records += batch.records.num_rows
        with progress.hidden():
            yield batch


def _check_not_beyond(consumer: Consumer, topic: str) -> None:
    """Begin at the end of each partition that ends before the requested offset. `OutOfRange` if all do: the command
    would wait for ever at an offset that was mistyped."""
    ends = consumer.end_offsets()
    beyond = {partition: offset for partition, offset in consumer.positions.items() if offset > ends[partition]}
    if beyond and len(beyond) == len(ends):
        last_end = max(ends.values())
        raise OutOfRange(
            f"offset {max(beyond.values())} is beyond the end of {topic}: its longest partition ends at "
            f"{last_end}. Use -o end to wait for new records, or -o -N for the last N records",
            log_start_offset=0,
            high_watermark=last_end,
        )
    for partition, offset in sorted(beyond.items()):
        end = ends[partition]
        complain(
            f"{partition.topic}/{partition.partition} ends at offset {end}, before {offset}: it is read from its end on"
        )
        consumer.seek(partition, end)


def _complain_if_all_is_earlier(consumer: Consumer, topic: str, start: str) -> None:
    ends = consumer.end_offsets()
    if all(offset >= ends[partition] for partition, offset in consumer.positions.items()):
        complain(f"no record of {topic} is at or after {start[1:]} yet: only new records are read")


def _bounded(batches: Iterator[Batch], count: int | None) -> Iterator[Batch]:
    """Batches with `count` records in all; None: without a bound."""
    left = count
    if left == 0:
        return
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield replace(batch, records=batch.records.slice(0, left))
        left -= min(left, batch.records.num_rows)
        if not left:
            return
