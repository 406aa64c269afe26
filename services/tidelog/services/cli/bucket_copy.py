"""`tidelog bucket copy`: a backup that is a bucket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.bucket import check_there, json_line, opened_bucket
from tidelog.services.cli.console import complain, size_text
from tidelog.services.cli.exit_codes import DAMAGED
from tidelog.services.cli.options import JsonOption
from tidelog.services.cli.progress import Progress
from tidelog.services.runtime.setting import Setting

if TYPE_CHECKING:
    from tidelog.storage.bucket.copy_transfer import CopyReport
    from tidelog.storage.object_store import ObjectStore
    from tidelog.storage.runtime import Runtime

MIB = 1024 * 1024
GRACE = Setting("--grace", "duration", 60_000, "Copy", "Nothing is deleted sooner.", 60_000, 365 * 86_400_000)
MEMORY = Setting("--memory", "size", 512 * MIB, "Copy", "Bytes of the objects in transit.", MIB, 1 << 40)

SourceArgument = Annotated[str, typer.Argument(help="The bucket that is copied.", metavar="SRC", show_default=False)]
TargetArgument = Annotated[
    str, typer.Argument(help="An empty bucket, or an earlier copy.", metavar="DST", show_default=False)
]
RequestsOption = Annotated[int, typer.Option("--requests", min=1, max=1_000, help="Objects on their way at a time.")]
MemoryOption = Annotated[str, typer.Option("--memory", help="What they may take together.", metavar="SIZE")]
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

    A broker on the copy serves what was acknowledged before the copy began.
    Exit code 6 if the source is damaged.

    [dim]tidelog bucket copy s3://my-bucket/log s3://backup/log[/dim]
    """
    settings = (int(MEMORY.parsed(memory) or 0), int(GRACE.parsed(grace) or 0) / 1_000)
    report = asyncio.run(_copy(source, target, requests=requests, memory_bytes=settings[0], grace_s=settings[1]))
    if as_json:
        print(json_line(report))
    else:
        _tell(report, target)
    if not report.whole:
        raise typer.Exit(DAMAGED)


async def _copy(source: str, target: str, *, requests: int, memory_bytes: int, grace_s: float) -> CopyReport:
    from tidelog.coordinator.topics.journal_topics import JournalTopics
    from tidelog.storage.bucket.copy import BucketCopy
    from tidelog.storage.bucket.copy_transfer import Transfer
    from tidelog.storage.runtime import Runtime as SystemRuntime
    from tidelog.storage.stores.opening import open_store
    from tidelog.storage.stores.retrying import RetryingObjectStore

    check_there(source)
    runtime = SystemRuntime()
    async with opened_bucket(source) as opened:
        ours = RetryingObjectStore(open_store(target, runtime=runtime), runtime)
        try:
            with Progress("copying", None, "objects", reads_stdin=False) as bar:
                shown_bytes = 0

                def show() -> None:
                    nonlocal shown_bytes
                    done = transfer.report.copied_bytes
                    bar.records = transfer.report.copied
                    bar.advance(done - shown_bytes)
                    shown_bytes = done

                transfer = Transfer(opened, ours, at_once=requests, memory_bytes=memory_bytes, on_copied=show)
                if bar.shows:
                    bar.expect(await _missing_bytes(opened, ours))
                topics, cluster_id = JournalTopics(opened, runtime), await _cluster_id(opened, runtime)
                return await BucketCopy(transfer, topics, cluster_id, runtime, grace_s).run()
        finally:
            await ours.aclose()


async def _missing_bytes(source: ObjectStore, target: ObjectStore) -> int:
    """About how much there is to copy."""
    from tidelog.storage.bucket.listing import stored_bytes

    return max(0, await stored_bytes(source) - await stored_bytes(target))


async def _cluster_id(store: ObjectStore, runtime: Runtime) -> str:
    """Whose the bucket is; empty if it has no topic yet."""
    from tidelog.coordinator.cluster.identity import bucket_identity
    from tidelog.coordinator.journal import Journal

    journal = Journal(store, runtime)
    await journal.open()
    identity = bucket_identity(journal)
    return identity.cluster_id if identity else ""


def _tell(report: CopyReport, target: str) -> None:
    for finding in report.damaged:
        print(f"{finding.severity.value}: {finding.key}: {finding.text}")
    copied = f"{report.copied} objects, {size_text(report.copied_bytes)} copied"
    there = f"{report.skipped} ({size_text(report.skipped_bytes)}) were there"
    gone = f", {report.deleted} taken away" if report.deleted else ""
    complain(f"{copied}, {there}{gone}: {target} is {'a whole copy' if report.whole else 'as DAMAGED as its source'}")
