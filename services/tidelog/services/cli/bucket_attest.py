"""`tidelog bucket attest`: notes the hash of an archive's history, and proves later that the past was not altered."""

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
from tidelog.storage.errors import NotFound

COLUMNS = ("topic", "id", "shard", "version", "segments", "records", "head")


def attest(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Only these topics; without, all of them.")
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option(
            "--since",
            help="The output of an earlier `attest --json`: prove that the archive has grown from it.",
            metavar="FILE",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Print the hash of the history of topics, in each shard that has their partitions, and one digest of all of them.

    With --since, every hash of every history is computed again, and the heads in FILE must be
    among them. The command names each topic that it cannot prove, and ends with exit code 6.
    Brokers may run at the same time.

    [dim]tidelog bucket attest orders --json > then.json
    tidelog bucket attest orders --since then.json[/dim]
    """
    if not asyncio.run(_attest(store, topics or [], since.read_bytes() if since else None, as_json=as_json)):
        raise typer.Exit(DAMAGED)


async def _attest(store: str, topics: list[str], since: bytes | None, *, as_json: bool) -> bool:
    """Whether every topic is proved."""
    from tidelog.storage.bucket.attest import BucketAttestation, TopicHead, attestation_lines, read_attestation

    earlier = None if since is None else read_attestation(since)
    heads: list[TopicHead] = []
    unproved = 0
    async with opened_bucket(store) as bucket:
        attestation = BucketAttestation(bucket.store, bucket.runtime, earlier, topics=topics)
        with Progress("attesting", None, "heads", reads_stdin=False) as bar:
            async for answer in attestation.heads():
                bar.reach(bar.records + 1, 0)
                if isinstance(answer, TopicHead):
                    heads.append(answer)
                    continue
                unproved += 1
                where = f"{answer.topic} ({answer.topic_id}) in shard {answer.shard}"
                print(json_line(answer) if as_json else f"error: {where}: {answer.fault}")
    if as_json:
        for line in attestation_lines(heads):
            print(line.decode())
    else:
        print_table(COLUMNS, [astuple(head) for head in sorted(heads)])
        print(f"digest {attestation.digest}")
    since_then = "" if earlier is None else f", {len(earlier)} in the earlier attestation"
    complain(f"{len(heads)} heads{since_then}: {f'{unproved} NOT PROVED' if unproved else 'proved'}")
    for topic in sorted(set(topics) - {head.topic for head in heads} - ({head.topic for head in earlier or ()})):
        raise NotFound(f"no shard archives a topic {topic!r}")
    return not unproved
