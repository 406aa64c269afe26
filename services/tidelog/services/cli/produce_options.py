"""The options of `tidelog topic produce`, and their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidelog.services.cli.option_sets import OptionSet
from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    from tidelog.client import ProducerOptions
    from tidelog.services.cli.line_records import LineShape
    from tidelog.services.cli.line_run import RunName

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


@dataclass(frozen=True)
class RunStart:
    """Where a run begins. `random_id` is None if the run cannot be resumed."""

    first_line: int
    random_id: str | None
    earlier: RunName | None


@dataclass(frozen=True)
class ProduceOptions(OptionSet):
    """Which lines to send, as which records, and how."""

    files: FilesOption = None
    key: KeyOption = None
    allow_missing_key: MissingKeyOption = False
    headers: HeadersOption = None
    timestamp: TimestampOption = None
    tombstones: TombstonesOption = False
    from_json: FromJsonOption = False
    partition: PartitionOption = None
    acks: AcksOption = "all"
    timeout_s: TimeoutOption = 120.0
    from_line: FromLineOption = None
    resume: ResumeOption = None
    decompress: DecompressOption = True

    def shape(self) -> LineShape:
        """How lines become records. Raises `Invalid`."""
        from tidelog.services.cli.line_records import LineShape, header_of, key_finder, time_finder, time_ms

        if self.from_json and (self.key is not None or self.headers or self.timestamp is not None or self.tombstones):
            raise Invalid("with --from-json the lines say all: leave out -k, -H, -T and -Z", field="from_json")
        field, fixed = (self.timestamp, None) if (self.timestamp or "").startswith("json:") else (None, self.timestamp)
        return LineShape(
            key_of=None if self.key is None else key_finder(self.key),
            key_required=self.key is not None and not self.allow_missing_key,
            time_of=None if field is None else time_finder(field),
            from_json=self.from_json,
            headers=tuple(map(header_of, self.headers or ())),
            timestamp_ms=None if fixed is None else time_ms(fixed),
            tombstones=self.tombstones,
        )

    def start(self) -> RunStart:
        """Where the run begins. Raises `Invalid`."""
        from tidelog.services.cli.line_run import RunName
        from tidelog.storage.runtime import Runtime

        if self.resume is None:
            return RunStart(self.from_line or 1, Runtime().entropy.new_id() if self.acks == "all" else None, None)
        earlier = RunName.parsed(self.resume)
        if self.from_line is not None or self.acks != "all":
            raise Invalid("--resume needs --acks all and excludes --resume-from-line", field="resume")
        return RunStart(earlier.first_line, earlier.random_id, earlier)

    def producer_options(self, start: RunStart) -> ProducerOptions:
        """The options of the producer of a run that begins at `start`."""
        from tidelog.client import ProducerOptions

        return ProducerOptions(
            acks=self.acks,
            delivery_timeout_s=self.timeout_s,
            connect_timeout_s=min(self.timeout_s, 5.0),
            close_timeout_s=self.timeout_s,
            producer_id=None if start.random_id is None else f"cli.{start.random_id}",
        )
