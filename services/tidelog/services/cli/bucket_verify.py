"""`tidelog bucket verify`: proves a bucket."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tidelog.services.cli.bucket import json_line, opened_bucket
from tidelog.services.cli.console import complain, size_text
from tidelog.services.cli.exit_codes import DAMAGED
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from tidelog.services.cli.progress import Progress


def verify(
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte, not only listings and footers.")] = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Prove the bucket: checksums, offsets without gap or overlap, manifests against objects.

    Prints what is not as it should be; exit code 6 if records are damaged or missing. A broker may run meanwhile.
    """
    if asyncio.run(_verify(store, deep=deep, as_json=as_json)):
        raise typer.Exit(DAMAGED)


async def _verify(store: str, *, deep: bool, as_json: bool) -> bool:
    """Whether something is damaged."""
    from tidelog.storage.finding import Severity
    from tidelog.storage.verify import BucketVerification

    damaged = False
    async with opened_bucket(store) as opened:
        with Progress("verifying", None, "objects") as bar:
            verification = BucketVerification(opened, deep=deep)
            async for finding in verification.findings():
                bar.records = verification.summary.objects
                damaged = damaged or finding.severity is Severity.ERROR
                print(json_line(finding) if as_json else f"{finding.severity.value}: {finding.key}: {finding.text}")
    looked = verification.summary
    complain(f"{looked.objects} objects, {size_text(looked.size_bytes)}: {'DAMAGED' if damaged else 'sound'}")
    return damaged
