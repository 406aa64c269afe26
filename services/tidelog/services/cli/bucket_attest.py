"""`tidelog bucket attest`: writes down what an archive is, and shows later that its past was not altered."""

from __future__ import annotations

import asyncio
from dataclasses import astuple
from pathlib import Path
from typing import Annotated

import typer

from tidelog.services.cli.bucket import json_line, opened_bucket
from tidelog.services.cli.console import complain, print_table
from tidelog.services.cli.exit_codes import DAMAGED
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from tidelog.services.cli.progress import Progress

COLUMNS = ("topic", "id", "partition", "version", "log start", "cold end", "segments", "head")


def attest(
    since: Annotated[
        Path | None,
        typer.Option(
            "--since",
            help="What an earlier `attest --json` printed: prove that the archive has grown from it.",
            metavar="FILE",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Print the hash that stands for each partition's history, and one digest of them all.

    With --since, every hash of every history is computed again, and the heads in FILE must be
    among them. Partitions that cannot be proved are named, with exit code 6. Brokers may run meanwhile.

    [dim]tidelog bucket attest --json > then.json
    tidelog bucket attest --since then.json[/dim]
    """
    if not asyncio.run(_attest(store, since.read_bytes() if since else None, as_json=as_json)):
        raise typer.Exit(DAMAGED)


async def _attest(store: str, since: bytes | None, *, as_json: bool) -> bool:
    """Whether everything is proved."""
    from tidelog.storage.bucket.attest import BucketAttestation, PartitionHead, attestation_lines, read_attestation

    earlier = None if since is None else read_attestation(since)
    heads: list[PartitionHead] = []
    unproved = 0
    async with opened_bucket(store) as opened:
        attestation = BucketAttestation(opened, earlier)
        with Progress("attesting", None, "partitions", reads_stdin=False) as bar:
            async for told in attestation.partitions():
                bar.records += 1
                bar.advance(0)
                if isinstance(told, PartitionHead):
                    heads.append(told)
                    continue
                unproved += 1
                where = f"{told.topic}/{told.partition} ({told.topic_id})"
                print(json_line(told) if as_json else f"error: {where}: {told.fault}")
    if as_json:
        for line in attestation_lines(heads):
            print(line.decode())
    else:
        print_table(COLUMNS, [astuple(head) for head in sorted(heads)])
        print(f"digest {attestation.digest}")
    since_then = "" if earlier is None else f", {len(earlier)} of an earlier time"
    complain(f"{len(heads)} partitions{since_then}: {f'{unproved} NOT PROVED' if unproved else 'proved'}")
    return not unproved
