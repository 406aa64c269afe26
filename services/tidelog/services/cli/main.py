"""The command `tidelog`: the tree of its commands, and its exit code.

Each command is in the module of its noun and imports what it needs when it runs, so that `tidelog --help` is fast. An
error of `tidelog.storage.errors` ends the command with lines on stderr and a code of `exit_codes`.

SIGTERM is turned into the interrupt that Ctrl-C causes. So both end every command in the same way: `produce` flushes,
`bucket verify` saves its place.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Annotated

import typer

from tidelog.services.cli import (
    bucket,
    bucket_attest,
    bucket_copy,
    bucket_repair,
    bucket_sweep,
    bucket_verify,
    cluster,
    cluster_cost,
    cluster_recover,
    compactor,
    consume,
    diagnosis,
    group,
    produce,
    profile,
    segments,
    serve,
    spark,
    topic,
    topic_copy,
    topic_offsets,
)
from tidelog.services.cli.broker_options import with_broker
from tidelog.services.cli.console import complain
from tidelog.services.cli.exit_codes import FAILED, INTERRUPTED, OK, TERMINATED, exit_code_of
from tidelog.storage.errors import TidelogError

app = typer.Typer(
    name="tidelog",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
topics = typer.Typer(help="Topics and their records.", no_args_is_help=True)
groups = typer.Typer(help="Consumer groups and their offsets.", no_args_is_help=True)
clusters = typer.Typer(help="Brokers, shards and their leaders.", no_args_is_help=True)
sparks = typer.Typer(help="Jobs and SQL over topics, by Spark.", no_args_is_help=True)
profiles = typer.Typer(help="Named brokers, so that commands need no options.", no_args_is_help=True)
buckets = typer.Typer(help="The bucket itself, without a broker.", no_args_is_help=True)

app.command("serve")(serve.with_settings(serve.serve))
app.command("config")(serve.with_settings(serve.config))
app.command("compactor")(serve.with_settings(compactor.compactor, groups=compactor.SETTING_GROUPS))
app.command("doctor")(serve.with_settings(with_broker(diagnosis.doctor), groups=diagnosis.SETTING_GROUPS))
app.add_typer(topics, name="topic")
app.add_typer(groups, name="group")
app.add_typer(clusters, name="cluster")
app.add_typer(buckets, name="bucket")
app.add_typer(profiles, name="profile")
app.add_typer(sparks, name="spark")
topics.command("create")(with_broker(topic.create))
topics.command("list")(with_broker(topic.list_topics))
topics.command("describe")(with_broker(topic.describe))
topics.command("alter")(with_broker(topic.alter))
topics.command("delete")(with_broker(topic.delete))
topics.command("delete-records")(with_broker(topic.delete_records))
topics.command("offsets")(with_broker(topic_offsets.offsets))
topics.command("segments")(with_broker(segments.segments))
topics.command("produce")(with_broker(produce.produce))
topics.command("consume")(with_broker(consume.consume))
topics.command("copy")(with_broker(topic_copy.copy))
groups.command("list")(with_broker(group.list_groups))
groups.command("describe")(with_broker(group.describe))
groups.command("members")(with_broker(group.members))
groups.command("seek")(with_broker(group.seek))
groups.command("delete")(with_broker(group.delete))
clusters.command("info")(with_broker(cluster.info))
clusters.command("cost")(with_broker(cluster_cost.cost))
clusters.command("drain")(with_broker(cluster.drain))
clusters.command("upgrade")(with_broker(cluster.upgrade))
clusters.command("health")(with_broker(cluster.health))
clusters.command("recover")(serve.with_settings(cluster_recover.recover))
buckets.command("ls")(bucket.ls)
buckets.command("verify")(bucket_verify.verify)
buckets.command("repair")(bucket_repair.repair)
buckets.command("sweep")(bucket_sweep.sweep)
buckets.command("copy")(bucket_copy.copy)
buckets.command("attest")(bucket_attest.attest)

sparks.command("run", context_settings=spark.PASSED_ON)(spark.run)
sparks.command("sql", context_settings=spark.PASSED_ON)(spark.sql)
sparks.command("package", context_settings=spark.PASSED_ON)(spark.package)
profiles.command("list")(profile.list_profiles)
profiles.command("show")(profile.show)
profiles.command("set")(profile.set_profile)
profiles.command("use")(profile.use)
profiles.command("delete")(profile.delete)


@app.command()
def version() -> None:
    """Print the version, like --version.

    [dim]tidelog version[/dim]
    """
    from importlib.metadata import version as version_of

    print(f"tidelog {version_of('tidelog')}")


def _version_and_end(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_version_and_end, is_eager=True),
    ] = False,
) -> None:
    """A Kafka-like log that stores everything in an S3 bucket."""


def main() -> int:
    """Run the command line and return its exit code."""
    sigterm = _Sigterm()
    signal.signal(signal.SIGTERM, sigterm)
    logging.getLogger("tidelog.client").handlers = [_Complaining()]
    code = _run()
    return TERMINATED if sigterm.came and code == INTERRUPTED else code


def _run() -> int:
    try:
        app(prog_name="tidelog")
    except SystemExit as end:
        reader_left = isinstance(end.__context__, BrokenPipeError)  # Typer turns it into exit code 1
        return _quiet_end() if reader_left else _flushed(_code(end))
    except TidelogError as error:
        for line in (str(error), *getattr(error, "__notes__", ())):
            complain(line)
        return exit_code_of(error)
    except BrokenPipeError:
        return _quiet_end()
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


@dataclass
class _Sigterm:
    """Turns SIGTERM into an interrupt, until a command installs its own handler (`serve`, `compactor`)."""

    came: bool = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
        signal.raise_signal(signal.SIGINT)


class _Complaining(logging.Handler):
    """Prints warnings of the client as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def _code(end: SystemExit) -> int:
    if isinstance(end.code, str):
        complain(end.code)
        return FAILED
    return OK if end.code is None else int(end.code)


def _flushed(code: int) -> int:
    """Flush stdout, then return `code`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _quiet_end()
    return code


def _quiet_end() -> int:
    """Return OK after the reader of our pipe has closed it. Python's own flush at exit must not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


if __name__ == "__main__":
    sys.exit(main())
