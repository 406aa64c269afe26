"""`python -m demo`: runs the demo and prints what happens, or a summary as JSON."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from demo.narrator import Narrator
from demo.story import DemoOptions, run_demo
from tidelog.services.cli.console import complain, print_json
from tidelog.services.cli.exit_codes import FAILED, exit_code_of
from tidelog.storage.errors import Invalid, TidelogError
from tidelog.storage.runtime import SystemClock

PLAIN_WIDTH = 120


def demo(
    events: Annotated[int, typer.Option(min=1, help="How many events to generate.", metavar="COUNT")] = 1_000_000,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Produce the lines of this file instead (also .gz).", exists=True, dir_okay=False, readable=True
        ),
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="A new folder for the broker's data.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the generator.")] = 7,
    crash: Annotated[bool, typer.Option(help="Kill the broker with kill -9 halfway.")] = True,
    spark: Annotated[bool, typer.Option(help="Run two Spark queries.")] = True,
    json_summary: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON; everything else goes to stderr.")
    ] = False,
) -> None:
    """Show the main job from end to end: a broker, a million events, a crash, a fetch and two Spark queries.

    Exit code 1 if any number differs between the generator, HTTP and Spark.

    [dim]make demo ARGS="--events 100000 --no-spark"[/dim]
    """
    stream = sys.stderr if json_summary else sys.stdout
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else PLAIN_WIDTH)
    summary = run_demo(DemoOptions(_fresh(folder), events, file, seed, crash, spark), Narrator(console, SystemClock()))
    if json_summary:
        print_json(asdict(summary) | {"agree": summary.agree, "usd": summary.bill.usd})
    if not summary.agree:
        raise typer.Exit(FAILED)


def _fresh(folder: Path | None) -> Path:
    """A new empty folder. Raises `Invalid` if `folder` is not empty."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Invalid(f"{folder} is not an empty folder: name a new one", field="folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def main() -> int:
    """Run the command and return its exit code."""
    app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.command()(demo)
    try:
        app(prog_name="python -m demo", standalone_mode=True)
    except TidelogError as error:
        complain(str(error))
        return exit_code_of(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
