"""`tidelog bucket sweep`: finds objects that nothing will read again, and deletes them if asked to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.bucket import json_line, opened_bucket
from tidelog.services.cli.console import complain, size_text
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from tidelog.services.settings.setting import Setting

if TYPE_CHECKING:
    from tidelog.storage.bucket.sweep.sweep_report import Stray, SweepReport

GRACE = Setting("--grace", "duration", 86_400_000, "Nothing younger is touched.", 60_000, 365 * 86_400_000)
"""A minute at least: no worker's grace is shorter (`delete.grace.ms`)."""

DeleteOption = Annotated[bool, typer.Option("--delete/--dry-run", help="Delete the objects, or only print them.")]
GraceOption = Annotated[
    str, typer.Option("--grace", help="Leave younger objects alone (by the store's clock).", metavar="DURATION")
]


def sweep(
    delete: DeleteOption = False,
    grace: GraceOption = "24h",
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Find uploads without a manifest, remains of deleted topics, dead staging areas, unfinished uploads.

    Without --delete it only prints them. Brokers and jobs may run at the same time;
    the grace must be longer than delete.grace.ms.
    With --json it prints one stray object per line, then a line with the sums.

    [dim]tidelog bucket sweep --store s3://my-bucket/log
    tidelog bucket sweep --delete --grace 3d --store s3://my-bucket/log[/dim]
    """
    grace_ms = int(GRACE.parsed(grace) or 0)
    report = asyncio.run(_sweep(store, grace_ms=grace_ms, delete=delete, as_json=as_json))
    if as_json:
        print(json_line({"report": report}))
    else:
        _print_report(report, delete=delete)


async def _sweep(store: str, *, grace_ms: int, delete: bool, as_json: bool) -> SweepReport:
    from tidelog.storage.bucket.sweep.bucket_sweep import BucketSweep, SweepSettings

    async with opened_bucket(store) as bucket:
        sweep = BucketSweep(bucket.store, bucket.topics(), bucket.runtime, SweepSettings(grace_ms, delete))
        async for stray in sweep.strays():
            print(json_line(stray) if as_json else _line(stray))
    return sweep.report


def _line(stray: Stray) -> str:
    done = "deleted" if stray.deleted else "stray"
    return (
        f"{done}: {stray.key}: {stray.reason.value}, {size_text(stray.size_bytes)}, {stray.age_ms // 3_600_000} h old"
    )


def _print_report(report: SweepReport, *, delete: bool) -> None:
    for name, why in report.unjudged.items():
        complain(f"left alone: {name}: {why}")
    if report.more_unjudged:
        complain(f"left alone: {report.more_unjudged} more")
    for reason, count in sorted(report.found.items()):
        complain(f"{reason}: {count}, {size_text(report.found_bytes[reason])}")
    if report.young:
        complain(f"too young to judge: {report.young}, {size_text(report.young_bytes)}")
    if delete:
        complain(f"deleted {report.deleted}, {size_text(report.deleted_bytes)}")
    else:
        complain("nothing was deleted: add --delete" if report.found else "nothing is stray")
