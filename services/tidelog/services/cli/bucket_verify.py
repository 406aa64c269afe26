"""`tidelog bucket verify`: checks every object of a bucket."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.bucket import finding_line, json_line, opened_bucket
from tidelog.services.cli.console import complain, size_text
from tidelog.services.cli.exit_codes import DAMAGED
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from tidelog.services.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.storage.bucket.finding import Summary
    from tidelog.storage.bucket.verify.verify_state import WalkState

SAVE_EVERY_S = 5.0

DeepOption = Annotated[bool, typer.Option("--deep", help="Read every byte, not only listings and manifests.")]
ResumeOption = Annotated[
    Path | None,
    typer.Option("--resume", help="Continue from this file if it exists, and keep it up to date.", metavar="FILE"),
]
RequestsOption = Annotated[int, typer.Option("--requests", min=1, max=1_000, help="Requests in progress at a time.")]


def verify(
    deep: DeepOption = False,
    store: StoreOption = DEFAULT_STORE,
    resume: ResumeOption = None,
    requests: RequestsOption = 32,
    as_json: JsonOption = False,
) -> None:
    """Verify the bucket: checksums, offsets without gap or overlap, manifests against objects, the journal.

    It prints each finding. Exit code 6 if records are damaged or missing.
    Brokers may run at the same time. With --json it prints one finding per line, then a line with the sums.

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
    from tidelog.coordinator.recovery.groups_check import GroupsCheck
    from tidelog.coordinator.recovery.journal_check import JournalCheck
    from tidelog.storage.bucket.listing import stored_bytes
    from tidelog.storage.bucket.verify.verification import BucketVerification
    from tidelog.storage.bucket.verify.verify_state import WalkState

    async with opened_bucket(store) as bucket:
        file = ResumeFile(resume, bucket.runtime.clock.monotonic) if resume else None
        state = WalkState(bucket.store.url, deep)

        def on_looked() -> None:
            bar.reach(verification.summary.objects, verification.summary.size_bytes)
            if file:
                file.save_now_and_then(verification.state)

        verification = BucketVerification(
            bucket.store,
            deep=deep,
            topics=bucket.topics(),
            journal=lambda: JournalCheck(bucket.store, bucket.runtime, deep=deep, at_once=requests).findings(),
            groups=lambda: GroupsCheck(bucket.store, deep=deep).findings(),
            state=file.opened(state) if file else state,
            at_once=requests,
            on_looked=on_looked,
            runtime=bucket.runtime,
        )
        with Progress("verifying", None, "objects", reads_stdin=False) as bar:
            if bar.shows:
                bar.expect(await stored_bytes(bucket.store))
            with file.kept(verification.state) if file else contextlib.nullcontext():
                async for finding in verification.findings():
                    print(json_line(finding) if as_json else finding_line(finding))
    return verification.summary


class ResumeFile:
    """The position of a walk, in the file `path`."""

    def __init__(self, path: Path, now_s: Callable[[], float]) -> None:
        self._path = path
        self._now_s = now_s
        self._saved_s = now_s()

    def opened(self, beginning: WalkState) -> WalkState:
        """The state in the file, or `beginning` if there is no file. Raises `Corrupt`, `Invalid`."""
        from tidelog.storage.bucket.verify.verify_state import decode_state

        if self._path.exists():
            return decode_state(str(self._path), self._path.read_bytes(), store=beginning.store, deep=beginning.deep)
        self._save(beginning)  # so that a file that cannot be written fails now, and not in an hour
        return beginning

    def save_now_and_then(self, state: WalkState) -> None:
        if self._now_s() - self._saved_s >= SAVE_EVERY_S:
            self._save(state)
            self._saved_s = self._now_s()

    @contextlib.contextmanager
    def kept(self, state: WalkState) -> Iterator[None]:
        """Save the state if the walk is interrupted, and delete the file once the walk is complete."""
        try:
            yield
        except BaseException:
            self._save(state)
            raise
        self._path.unlink(missing_ok=True)

    def _save(self, state: WalkState) -> None:
        from tidelog.storage.bucket.verify.verify_state import encode_state

        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_bytes(encode_state(state))
        beside.replace(self._path)


def _text(summary: Summary) -> str:
    parts = [f"{summary.objects} objects, {size_text(summary.size_bytes)}"]
    if summary.waiting:
        parts.append(f"{summary.waiting} of them wait for deletion ({size_text(summary.waiting_bytes)})")
    if summary.orphans:
        parts.append(f"{summary.orphans} orphans ({size_text(summary.orphan_bytes)})")
    if summary.losses:
        parts.append(f"{summary.losses} recorded losses")
    if summary.warnings:
        parts.append(f"{summary.warnings} warnings")
    verdict = "sound" if summary.sound else f"DAMAGED, {summary.errors} errors"
    return f"{', '.join(parts)}: {verdict}"
