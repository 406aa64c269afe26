"""`tidelog topic produce TOPIC < FILE`: a record a line, byte for byte, in bounded memory."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidelog.services.cli.console import complain, print_json
from tidelog.services.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, TopicArgument
from tidelog.services.cli.progress import Progress
from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES = 1 << 20
INTERRUPTED_FLUSH_S = 5.0
"""After Ctrl-C, how long what was read already may take to be acknowledged."""


FilesOption = Annotated[
    list[Path] | None, typer.Option("--file", "-f", help="Read this file instead of stdin. Repeatable.", metavar="FILE")
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", "-k", help="Key: a separator before the value, or json:FIELD.", metavar="SEP|json:FIELD"),
]
PartitionOption = Annotated[int | None, typer.Option("--partition", "-p", help="All records to this partition.", min=0)]
AcksOption = Annotated[Literal["0", "1", "all"], typer.Option("--acks", help="When the broker answers: 0, 1 or all.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to keep trying when the broker does not answer.", min=0)
]


def produce(
    topic: TopicArgument,
    files: FilesOption = None,
    key: KeyOption = None,
    partition: PartitionOption = None,
    acks: AcksOption = "all",
    timeout_s: TimeoutOption = 120.0,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Append lines from stdin or files: a record a line, byte for byte. The topic is created if need be.

    [dim]tidelog topic produce web < access.log
    tidelog topic produce web -k json:user.id < events.ndjson[/dim]
    """
    from tidelog.client import Producer, ProducerOptions
    from tidelog.services.cli.lines import key_finder, keyed_table, line_arrays

    key_of = None if key is None else key_finder(key)
    options = ProducerOptions(acks=acks, delivery_timeout_s=timeout_s, connect_timeout_s=min(timeout_s, 5.0))
    with (
        _inputs(files) as inputs,
        Progress(f"to {topic}", _size_bytes(inputs)) as progress,
        Producer(broker, topic, options) as producer,
    ):
        try:
            for descriptor in inputs:
                for lines in line_arrays(_reader(descriptor, progress)):
                    producer.send_batch(_placed(keyed_table(lines, key_of), partition))
                    progress.records += len(lines)
        except KeyboardInterrupt:
            producer.flush(INTERRUPTED_FLUSH_S)
            raise
    if as_json:
        print_json({"topic": topic, "records": progress.records})
    elif sys.stderr.isatty():
        complain(f"{progress.records:,} records to {topic}")


@contextlib.contextmanager
def _inputs(files: list[Path] | None) -> Iterator[list[int]]:
    """The descriptors to read from, in their order."""
    if not files:
        yield [sys.stdin.fileno()]
        return
    descriptors: list[int] = []
    try:
        for file in files:
            descriptors.append(os.open(file, os.O_RDONLY))
        yield descriptors
    except OSError as error:
        raise Invalid(f"{error.filename} cannot be read: {error.strerror}", field="file") from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _size_bytes(descriptors: list[int]) -> int | None:
    """The size of all inputs together; None if one is a pipe or a terminal, which has none."""
    found = [os.fstat(descriptor) for descriptor in descriptors]
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None


def _reader(descriptor: int, progress: Progress) -> Callable[[], bytes]:
    def read_block() -> bytes:
        block = os.read(descriptor, BLOCK_BYTES)
        progress.advance(len(block))
        return block

    return read_block


def _placed(records: pa.Table, partition: int | None) -> pa.Table:
    if partition is None:
        return records
    import pyarrow as pa

    return records.append_column("partition", pa.repeat(pa.scalar(partition, pa.int32()), records.num_rows))
