"""The options of `tidelog topic consume`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tidelog.services.cli.option_sets import OptionSet
from tidelog.services.cli.record_format import VALUES_ONLY

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
        "--group",
        "-g",
        help="Read as a member of this group: begin at its committed offsets, and commit printed records.",
    ),
]


@dataclass(frozen=True)
class ConsumeOptions(OptionSet):
    """Which records to print, and how."""

    start: StartOption = "start"
    count: CountOption = None
    exit_at_end: ExitOption = False
    line_format: FormatOption = VALUES_ONLY
    partitions: PartitionsOption = None
    where: WhereOption = None
    group: GroupOption = None

    @property
    def follow(self) -> bool:
        """Whether to wait for new records at the end of the log."""
        return not self.exit_at_end
