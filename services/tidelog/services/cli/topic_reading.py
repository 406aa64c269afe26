"""Reads for `topic consume` without a group: from a position on, and with --where only the matching records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.client import Consumer, ConsumerOptions
from tidelog.services.cli.console import complain
from tidelog.services.cli.consume_options import FETCH_BYTES
from tidelog.services.cli.progress import Progress
from tidelog.storage.errors import OutOfRange

if TYPE_CHECKING:
    from tidelog.client import Batch
    from tidelog.services.cli.broker_options import BrokerChoice
    from tidelog.services.cli.consume_options import ConsumeOptions
    from tidelog.services.cli.where.selection import Selection


@contextlib.contextmanager
def topic_batches(
    broker: BrokerChoice, topic: str, options: ConsumeOptions, selection: Selection | None
) -> Iterator[Iterator[Batch]]:
    """The batches to print. Raises `OutOfRange` if the first offset is beyond the end of every partition."""
    with Consumer(
        broker.access(),
        topic,
        partitions=options.partitions,
        start=options.start,
        options=ConsumerOptions(max_bytes=FETCH_BYTES),
    ) as consumer:
        if options.start.isdigit():
            _check_not_beyond(consumer, topic)
        elif options.start.startswith("@"):
            _complain_if_all_is_earlier(consumer, topic, options.start)
        if selection is None:
            yield _bounded(consumer.batches(follow=options.follow), options.count)
            return
        with _scanned(broker, consumer, topic, selection, follow=options.follow) as matching:
            yield _bounded(matching, options.count)


def complain_of_not_json(selection: Selection | None) -> None:
    """Say how many records do not match because their value is not JSON."""
    if selection is not None and selection.not_json:
        complain(f"records that do not match because their value is no JSON: {selection.not_json:,}")


@contextlib.contextmanager
def _scanned(
    broker: BrokerChoice, consumer: Consumer, topic: str, selection: Selection, *, follow: bool
) -> Iterator[Iterator[Batch]]:
    """The matching batches, with progress on stderr."""
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
            complain_of_not_json(selection)


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
