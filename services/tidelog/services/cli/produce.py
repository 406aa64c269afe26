"""`tidelog topic produce TOPIC < FILE`: sends each line as a record, byte for byte, in bounded memory."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import complain, print_json
from tidelog.services.cli.options import JsonOption, TopicArgument
from tidelog.services.cli.progress import Progress
from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    from tidelog.client import ProducerOptions
    from tidelog.services.cli.line_records import LineShape
    from tidelog.services.cli.line_run import LineRun, RunName

Acks = Literal["0", "1", "all"]

FilesOption = Annotated[
    list[Path] | None, typer.Option("--file", "-f", help="Read this file instead of stdin. Repeatable.", metavar="FILE")
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        "-k",
        help="Where a line has its key: before a separator, or in a field of its JSON.",
        metavar="SEP|json:FIELD",
    ),
]
MissingKeyOption = Annotated[
    bool, typer.Option("--allow-missing-key", help="With -k: a line without a key becomes a record without one.")
]
HeadersOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="A header of every record. Repeatable.", metavar="NAME=VALUE"),
]
TimestampOption = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        "-T",
        help="The time of the records, or the field of their JSON that has it: ms since 1970 or ISO 8601.",
        metavar="TIME|json:FIELD",
    ),
]
TombstonesOption = Annotated[
    bool,
    typer.Option("--tombstones", "-Z", help="An empty value (after the key) becomes null: it deletes the key."),
]
FromJsonOption = Annotated[
    bool, typer.Option("--from-json", help="Each line is a record as `topic consume --json` prints it.")
]
PartitionOption = Annotated[int | None, typer.Option("--partition", "-p", help="All records to this partition.", min=0)]
AcksOption = Annotated[Acks, typer.Option("--acks", help="When the broker answers: 0, 1 or all.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to keep trying when the broker does not answer.", min=0)
]
FromLineOption = Annotated[
    int | None,
    typer.Option("--resume-from-line", help="Begin at this line of the input; the first is 1.", metavar="N", min=1),
]
ResumeOption = Annotated[
    str | None,
    typer.Option("--resume", help="Continue where an earlier run stopped: the text that it printed.", metavar="RUN"),
]
DecompressOption = Annotated[bool, typer.Option("--decompress/--no-decompress", help="Decompress gzip and zstd input.")]


def produce(
    broker: BrokerChoice,
    topic: TopicArgument,
    files: FilesOption = None,
    key: KeyOption = None,
    allow_missing_key: MissingKeyOption = False,
    headers: HeadersOption = None,
    timestamp: TimestampOption = None,
    tombstones: TombstonesOption = False,
    from_json: FromJsonOption = False,
    partition: PartitionOption = None,
    acks: AcksOption = "all",
    timeout_s: TimeoutOption = 120.0,
    from_line: FromLineOption = None,
    resume: ResumeOption = None,
    decompress: DecompressOption = True,
    as_json: JsonOption = False,
) -> None:
    """Append lines from stdin or files, each as one record, byte for byte. Creates the topic if need be.

    Lines are counted from 1 over all files together. A command that stops early
    says how many records are in the topic, and which option continues exactly there.

    [dim]tidelog topic produce web < access.log
    tidelog topic produce web -k json:user.id -f events.ndjson.gz
    tidelog topic produce users -k : --tombstones -H source=import -T 2026-01-31T12:00:00Z
    tidelog topic produce web -f access.log --resume-from-line 1001[/dim]
    """
    from tidelog.client import Producer
    from tidelog.services.cli.line_run import LineRules, LineRun, RunName, Tally

    rules = LineRules(_shape(key, allow_missing_key, headers, timestamp, tombstones, from_json), partition)
    start = _start_of(acks, from_line, None if resume is None else RunName.parsed(resume))
    options, tally = _options(acks, timeout_s, start), Tally()
    with (
        _inputs(files) as inputs,
        Progress(f"to {topic}", _size_bytes(inputs)) as progress,
        Producer(broker.access(), topic, options, on_delivery=tally.delivered, on_refusal=tally.refuse) as producer,
    ):
        run = LineRun(producer, tally, rules, first_line=start.first_line, random_id=start.random_id)
        if start.earlier is not None:
            run.resume(start.earlier)
        with run.saying_where_it_stops():
            _send_all(run, inputs, progress, decompress=decompress)
    if as_json:
        print_json({"topic": topic, "records": run.records})
    else:
        complain(f"{run.records:,} records to {topic}")


def _shape(
    key: str | None,
    allow_missing_key: bool,
    headers: list[str] | None,
    timestamp: str | None,
    tombstones: bool,
    from_json: bool,
) -> LineShape:
    """How the options ask for lines to become records. Raises `Invalid`."""
    from tidelog.services.cli.line_records import LineShape, header_of, key_finder, time_finder, time_ms

    if from_json and (key is not None or headers or timestamp is not None or tombstones):
        raise Invalid("with --from-json the lines say all: leave out -k, -H, -T and -Z", field="from_json")
    by_field = timestamp is not None and timestamp.startswith("json:")
    return LineShape(
        key_of=None if key is None else key_finder(key),
        key_required=key is not None and not allow_missing_key,
        time_of=time_finder(timestamp) if timestamp is not None and by_field else None,
        from_json=from_json,
        headers=tuple(map(header_of, headers or ())),
        timestamp_ms=None if timestamp is None or by_field else time_ms(timestamp),
        tombstones=tombstones,
    )


@dataclass(frozen=True)
class _Start:
    """Where a run begins. `random_id` is None if the run cannot be resumed."""

    first_line: int
    random_id: str | None
    earlier: RunName | None


def _start_of(acks: Acks, from_line: int | None, earlier: RunName | None) -> _Start:
    from tidelog.storage.runtime import Runtime

    if earlier is not None:
        if from_line is not None or acks != "all":
            raise Invalid("--resume needs --acks all and excludes --resume-from-line", field="resume")
        return _Start(earlier.first_line, earlier.random_id, earlier)
    return _Start(from_line or 1, Runtime().entropy.new_id() if acks == "all" else None, None)


def _options(acks: Acks, timeout_s: float, start: _Start) -> ProducerOptions:
    from tidelog.client import ProducerOptions

    return ProducerOptions(
        acks=acks,
        delivery_timeout_s=timeout_s,
        connect_timeout_s=min(timeout_s, 5.0),
        close_timeout_s=timeout_s,
        producer_id=None if start.random_id is None else f"cli.{start.random_id}",
    )


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
