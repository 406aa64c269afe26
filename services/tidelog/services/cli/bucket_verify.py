"""`tidelog bucket verify`: proves a bucket."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.bucket import json_line, opened_bucket
from tidelog.services.cli.console import complain, size_text
from tidelog.services.cli.exit_codes import DAMAGED
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from tidelog.services.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.storage.bucket.finding import Finding, Summary
    from tidelog.storage.bucket.verify import BucketVerification
    from tidelog.storage.bucket.verify_state import WalkState
    from tidelog.storage.object_store import ObjectStore

SAVE_EVERY_S = 5.0

DeepOption = Annotated[bool, typer.Option("--deep", help="Read every byte, not only listings and footers.")]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        "--resume", help="Go on from this file if it is there, and keep it up to date meanwhile.", metavar="FILE"
    ),
]
RequestsOption = Annotated[int, typer.Option("--requests", min=1, max=1_000, help="Requests under way at a time.")]


def verify(
    deep: DeepOption = False,
    store: StoreOption = DEFAULT_STORE,
    resume: ResumeOption = None,
    requests: RequestsOption = 32,
    as_json: JsonOption = False,
) -> None:
    """Prove the bucket: checksums, offsets without gap or overlap, manifests against objects, the journal.

    It prints each finding; exit code 6 if records are damaged or missing.
    Brokers may run meanwhile. With --json it prints one finding per line, then a line with the sums.

    [dim]tidelog bucket verify --deep --store s3://my-bucket/log
    tidelog bucket verify --resume walk.json[/dim]
    """
    summary = asyncio.run(_verify(store, deep=deep, resume=resume, requests=requests, as_json=as_json))
    if as_json:
        print(json_line({"summary": summary, "sound": summary.sound}))
    else:
        complain(_text(summary))
    if not summary.sound:
        raise typer.Exit(DAMAGED)


async def _verify(store: str, *, deep: bool, resume: Path | None, requests: int, as_json: bool) -> Summary:
    from tidelog.coordinator.recovery.journal_check import JournalCheck
    from tidelog.coordinator.topics.journal_topics import JournalTopics
    from tidelog.storage.bucket.listing import stored_bytes
    from tidelog.storage.bucket.verify import BucketVerification
    from tidelog.storage.runtime import Runtime

    runtime = Runtime()
    async with opened_bucket(store) as opened:
        verification = BucketVerification(
            opened,
            deep=deep,
            topics=JournalTopics(opened, runtime),
            journal=lambda: JournalCheck(opened, runtime, deep=deep, at_once=requests).findings(),
            state=_state(resume, opened, deep=deep) if resume else None,
            at_once=requests,
            on_looked=lambda: watch(),
        )
        with Progress("verifying", None, "objects", reads_stdin=False) as bar:
            if bar.shows:
                bar.expect(await stored_bytes(opened))
            watch = _watching(verification, bar, resume, runtime.clock.monotonic)
            with _kept(resume, verification.state):
                async for finding in verification.findings():
                    print(json_line(finding) if as_json else _line(finding))
    return verification.summary


def _watching(
    verification: BucketVerification, bar: Progress, resume: Path | None, now_s: Callable[[], float]
) -> Callable[[], None]:
    """Shows how far the walk is, and saves where it stands every few seconds."""
    shown_bytes, saved_s = 0, now_s()

    def watch() -> None:
        nonlocal shown_bytes, saved_s
        summary = verification.summary
        bar.records = summary.objects
        bar.advance(summary.size_bytes - shown_bytes)
        shown_bytes = summary.size_bytes
        if resume and now_s() - saved_s >= SAVE_EVERY_S:
            _save(resume, verification.state)
            saved_s = now_s()

    return watch


def _state(path: Path, store: ObjectStore, *, deep: bool) -> WalkState:
    """What the file says, or the beginning."""
    from tidelog.storage.bucket.verify_state import WalkState, decode_state

    if path.exists():
        return decode_state(str(path), path.read_bytes(), store=store.url, deep=deep)
    state = WalkState(store.url, deep)
    _save(path, state)  # that the file cannot be written is better known now than in an hour
    return state


@contextlib.contextmanager
def _kept(path: Path | None, state: WalkState) -> Iterator[None]:
    """The file at `path` says where a walk within was interrupted; it is deleted after a whole one."""
    try:
        yield
    except BaseException:
        if path:
            _save(path, state)
        raise
    if path:
        path.unlink(missing_ok=True)


def _save(path: Path, state: WalkState) -> None:
    from tidelog.storage.bucket.verify_state import encode_state

    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(encode_state(state))
    beside.replace(path)


def _line(finding: Finding) -> str:
    return f"{finding.severity.value}: {finding.key}: {finding.text}"


def _text(summary: Summary) -> str:
    parts = [f"{summary.objects} objects, {size_text(summary.size_bytes)}"]
    if summary.waiting:
        parts.append(f"{summary.waiting} of them wait for deletion ({size_text(summary.waiting_bytes)})")
    if summary.orphans:
        parts.append(f"{summary.orphans} are orphans ({size_text(summary.orphan_bytes)})")
    if summary.losses:
        parts.append(f"{summary.losses} recorded losses")
    if summary.warnings:
        parts.append(f"{summary.warnings} warnings")
    verdict = "sound" if summary.sound else f"DAMAGED, {summary.errors} errors"
    return f"{', '.join(parts)}: {verdict}"
