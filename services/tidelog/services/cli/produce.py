"""`tidelog topic produce TOPIC < FILE`: sends each line as a record, byte for byte, in bounded memory."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import complain, print_json
from tidelog.services.cli.options import JsonOption, TopicArgument
from tidelog.services.cli.produce_options import ProduceOptions
from tidelog.services.cli.progress import Progress
from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    from tidelog.services.cli.line_run import LineRun


def produce(broker: BrokerChoice, topic: TopicArgument, options: ProduceOptions, as_json: JsonOption = False) -> None:
    """Append lines from stdin or files, each as one record, byte for byte. Creates the topic if need be.

    Lines are counted from 1 over all files together. A command that stops early
    says how many records are in the topic, and which option continues exactly there.

    [dim]tidelog topic produce web < access.log
    tidelog topic produce web -k json:user.id -f events.ndjson.gz
    tidelog topic produce users -k : --tombstones -H source=import -T 2026-01-31T12:00:00Z
    tidelog topic produce web -f access.log --resume-from-line 1001[/dim]
    """
    records = _produced(broker, topic, options)
    if as_json:
        print_json({"topic": topic, "records": records})
    else:
        complain(f"{records:,} records to {topic}")


def _produced(broker: BrokerChoice, topic: str, options: ProduceOptions) -> int:
    """Send the lines; return how many records the topic has got."""
    from tidelog.client import Producer
    from tidelog.services.cli.line_run import LineRules, LineRun, Tally

    rules, start, tally = LineRules(options.shape(), options.partition), options.start(), Tally()
    wanted = options.producer_options(start)
    with (
        _inputs(options.files) as inputs,
        Progress(f"to {topic}", _size_bytes(inputs)) as progress,
        Producer(broker.access(), topic, wanted, on_delivery=tally.delivered, on_refusal=tally.refuse) as producer,
    ):
        run = LineRun(producer, tally, rules, first_line=start.first_line, random_id=start.random_id)
        if start.earlier is not None:
            run.resume(start.earlier)
        with run.saying_where_it_stops():
            _send_all(run, inputs, progress, decompress=options.decompress)
    return run.records


def _send_all(run: LineRun, inputs: list[int], progress: Progress, *, decompress: bool) -> None:
    from tidelog.services.cli.input_lines import input_blocks, line_arrays

    for descriptor in inputs:
        for lines in line_arrays(input_blocks(descriptor, progress.advance, decompress=decompress)):
            run.send(lines)
            progress.records = run.records
    run.flush()


@contextlib.contextmanager
def _inputs(files: list[Path] | None) -> Iterator[list[int]]:
    """The descriptors to read from, in order."""
    if not files:
        yield [sys.stdin.fileno()]
        return
    with contextlib.ExitStack() as opened:
        try:
            descriptors = [opened.enter_context(file.open("rb", buffering=0)).fileno() for file in files]
        except OSError as error:
            raise Invalid(f"{error.filename} cannot be read: {error.strerror}", field="file") from error
        yield descriptors


def _size_bytes(descriptors: list[int]) -> int | None:
    """The size of all inputs together; None if one of them is a pipe or a terminal."""
    found = [os.fstat(descriptor) for descriptor in descriptors]
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None
