"""`tidelog bucket copy`: a backup that is itself a bucket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.bucket import OpenedBucket, finding_line, json_line, opened_bucket
from tidelog.services.cli.console import complain, size_text
from tidelog.services.cli.exit_codes import DAMAGED
from tidelog.services.cli.options import JsonOption
from tidelog.services.cli.progress import Progress
from tidelog.services.settings.setting import Setting

if TYPE_CHECKING:
    from tidelog.storage.bucket.copy.transfer import CopyReport

MIB = 1024 * 1024
GRACE = Setting("--grace", "duration", 60_000, "Nothing is deleted sooner.", 60_000, 365 * 86_400_000)
MEMORY = Setting("--memory", "size", 512 * MIB, "Bytes of the objects in transit.", MIB, 1 << 40)

SourceArgument = Annotated[str, typer.Argument(help="The bucket to copy.", metavar="SRC", show_default=False)]
TargetArgument = Annotated[
    str, typer.Argument(help="An empty bucket, or an earlier copy.", metavar="DST", show_default=False)
]
RequestsOption = Annotated[int, typer.Option("--requests", min=1, max=1_000, help="Objects in transit at a time.")]
MemoryOption = Annotated[str, typer.Option("--memory", help="Memory for the objects in transit.", metavar="SIZE")]
GraceOption = Annotated[str, typer.Option("--grace", help="The brokers' delete.grace.ms.", metavar="DURATION")]


def copy(
    source: SourceArgument,
    target: TargetArgument,
    requests: RequestsOption = 16,
    memory: MemoryOption = "512MiB",
    grace: GraceOption = "1m",
    as_json: JsonOption = False,
) -> None:
    """Copy a bucket while brokers write to it. A second run copies only what is new.

    A broker on the copy serves every record that was acknowledged before the copy began.
    Exit code 6 if the source is damaged.

    [dim]tidelog bucket copy s3://my-bucket/log s3://backup/log[/dim]
    """
    memory_bytes, grace_ms = int(MEMORY.parsed(memory) or 0), int(GRACE.parsed(grace) or 0)
    report = asyncio.run(_copy(source, target, requests=requests, memory_bytes=memory_bytes, grace_s=grace_ms / 1_000))
    if as_json:
        print(json_line(report))
    else:
        _print_report(report, target)
    if not report.whole:
        raise typer.Exit(DAMAGED)


async def _copy(source: str, target: str, *, requests: int, memory_bytes: int, grace_s: float) -> CopyReport:
    from tidelog.storage.bucket.copy.bucket_copy import BucketCopy
    from tidelog.storage.bucket.copy.transfer import Transfer
    from tidelog.storage.bucket.listing import stored_bytes

    async with opened_bucket(source) as ours, opened_bucket(target, may_create=True) as theirs:
        with Progress("copying", None, "objects", reads_stdin=False) as bar:
            transfer = Transfer(
                ours.store,
                theirs.store,
                at_once=requests,
                memory_bytes=memory_bytes,
                on_copied=lambda: bar.reach(transfer.report.copied, transfer.report.copied_bytes),
            )
            if bar.shows:
                bar.expect(max(0, await stored_bytes(ours.store) - await stored_bytes(theirs.store)))
            cluster_id = await _cluster_id(ours)
            return await BucketCopy(transfer, ours.topics(), cluster_id, ours.runtime, grace_s).run()


async def _cluster_id(bucket: OpenedBucket) -> str:
    """The identity of the bucket's cluster; empty if it has none yet."""
    from tidelog.coordinator.cluster.identity import bucket_identity
    from tidelog.coordinator.journal import Journal

    journal = Journal(bucket.store, bucket.runtime)
    await journal.open()
    identity = bucket_identity(journal)
    return identity.cluster_id if identity else ""


def _print_report(report: CopyReport, target: str) -> None:
    for finding in report.damaged:
        print(finding_line(finding))
    if report.more_damaged:
        complain(f"more faults of the source, which are not named: {report.more_damaged}")
    copied = f"{report.copied} objects, {size_text(report.copied_bytes)} copied"
    skipped = f"{report.skipped} ({size_text(report.skipped_bytes)}) were already there"
    deleted = f", {report.deleted} deleted" if report.deleted else ""
    verdict = "a whole copy" if report.whole else "as DAMAGED as its source"
    complain(f"{copied}, {skipped}{deleted}: {target} is {verdict}")
