"""The command `tidelog demo`: options in, the story or a JSON summary out, the verdict as exit code.

Imports stand in the functions, so that `tidelog --help` is there at once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.services.demo.story import DemoSummary

NUMBERS_DIFFER = 1
PLAIN_WIDTH = 120


def demo(
    events: Annotated[int, typer.Option(min=1, help="How many events to generate.", metavar="COUNT")] = 1_000_000,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Produce the lines of this file instead (also .gz).", exists=True, dir_okay=False, readable=True
        ),
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Where the broker's data goes: a new folder.")] = None,
    seed: Annotated[int, typer.Option(help="Of the generator.")] = 7,
    crash: Annotated[bool, typer.Option(help="Kill the broker with -9 in the middle.")] = True,
    spark: Annotated[bool, typer.Option(help="Ask Spark too.")] = True,
    json_summary: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON; the story goes to stderr.")
    ] = False,
) -> None:
    """The main job from end to end: a broker, a million events, a crash, a fetch and two Spark queries.

    Exit code 1 if any number differs between the generator, HTTP and Spark.

    [dim]tidelog demo --events 100000 --no-spark[/dim]
    """
    from tidelog.services.demo.narrator import Narrator
    from tidelog.services.demo.story import DemoOptions, run_demo
    from tidelog.storage.runtime import SystemClock

    options = DemoOptions(_fresh(folder), events, file, seed, crash, spark)
    summary = run_demo(options, Narrator(_console(json_summary), SystemClock()))
    if json_summary:
        sys.stdout.write(as_json(summary) + "\n")
    if not summary.agree:
        raise typer.Exit(NUMBERS_DIFFER)


def as_json(summary: DemoSummary) -> str:
    """The summary for programs."""
    document = asdict(summary) | {"agree": summary.agree, "usd": summary.bill.usd}
    return json.dumps(document, indent=1)


def _fresh(folder: Path | None) -> Path:
    """A new empty folder; an existing one with something in it is refused."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Invalid(f"{folder} is not an empty folder: name a new one", field="folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _console(json_summary: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if json_summary else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else PLAIN_WIDTH)
