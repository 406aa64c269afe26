"""`tidelog compactor`: upkeep of a bucket's segments in a separate process."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidelog.services.cli.bucket import check_there
from tidelog.services.cli.console import complain, size_text
from tidelog.services.cli.exit_codes import DAMAGED, UNAVAILABLE
from tidelog.services.runtime.process_memory import bound_memory
from tidelog.services.settings.settings_sources import LoadedSettings, log_ignored

if TYPE_CHECKING:
    from tidelog.services.workers.compactor import Appended

SETTING_GROUPS = ("Store", "Logging", "Archive")
"""The groups of settings that a compactor uses."""

TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", help="Only this topic. Repeatable.", metavar="TOPIC")
]
OnceOption = Annotated[bool, typer.Option("--once", help="End as soon as nothing is due.")]
IntervalOption = Annotated[
    float,
    typer.Option("--interval", help="Seconds between rounds, unless work is due earlier.", metavar="S", min=1),
]
AliveOption = Annotated[
    Path | None,
    typer.Option("--alive-file", help="Renew this file every 10 s, for a health check.", metavar="FILE"),
]
LinesOption = Annotated[bool, typer.Option("--json", help="Print a JSON object for each version, for programs.")]


def compactor(
    loaded: LoadedSettings,
    topic: TopicsOption = None,
    once: OnceOption = False,
    interval_s: IntervalOption = 60.0,
    alive_file: AliveOption = None,
    as_json: LinesOption = False,
) -> None:
    """Maintain the segments of a bucket, beside its brokers or instead of them, until SIGTERM or Ctrl-C.

    It merges, compacts and expires segments and deletes garbage, as the leaders of shards do.
    Any number of compactors and brokers may do so at the same time. It prints a line for each
    version of a manifest that it writes. Without --once and --topic it also sweeps the bucket
    every archiver.sweep.interval.ms.

    [dim]tidelog compactor --store s3://my-bucket/log
    tidelog compactor --once --topic web[/dim]
    """
    bound_memory()
    from tidelog.services.runtime.logs import configure_logs
    from tidelog.services.workers.process import CompactorOptions, run_compactor

    settings = loaded.settings
    check_there(settings.store)
    configure_logs(settings.log_level, settings.log_format)
    log_ignored(loaded.service_links)
    options = CompactorOptions(tuple(topic or ()), interval_s, once, alive_file)
    totals = asyncio.run(run_compactor(settings, options, _print_json if as_json else _print_text))
    complain(f"{totals.versions} versions made in {totals.rounds} rounds; {totals.failures} topics skipped")
    if once and totals.failures:
        raise typer.Exit(DAMAGED if totals.damaged else UNAVAILABLE)


def _print_json(appended: Appended) -> None:
    _print(msgspec.json.encode(appended).decode())


def _print_text(appended: Appended) -> None:
    where = f"{appended.topic}, shard {appended.shard}" if appended.topic else f"shard {appended.shard}"
    what = "segments" if appended.topic else "objects"
    _print(
        f"{where}  version {appended.version}  {appended.change}: {appended.removed} {what} gone, "
        f"{appended.added} new; now {appended.segments} segments, {size_text(appended.size_bytes)}"
    )


def _print(line: str) -> None:
    print(line)
    sys.stdout.flush()  # for a program that reads the lines as they come
