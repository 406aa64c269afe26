"""`tidelog bucket ls | verify`: the bucket itself, without a broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidelog.services.cli.console import complain, size_text, time_text
from tidelog.services.cli.exit_codes import DAMAGED
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from tidelog.services.cli.progress import Progress
from tidelog.storage.errors import NotFound

if TYPE_CHECKING:
    from tidelog.storage.finding import Progress as VerificationProgress
    from tidelog.storage.object_store import ObjectInfo, ObjectStore


def ls(
    prefix: Annotated[str, typer.Argument(help="Only objects under this prefix, as wal/ or topics/web/.")] = "",
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """List the bucket's objects: size, time of the last change, key. With --json an object a line."""
    asyncio.run(_list(store, prefix, as_json=as_json))


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
    async with _opened(store) as opened:
        with Progress("verifying", None, "objects") as bar:
            done_bytes = 0

            def show(progress: VerificationProgress) -> None:
                nonlocal done_bytes
                bar.records = progress.objects
                bar.advance(progress.size_bytes - done_bytes)
                done_bytes = progress.size_bytes

            verification = BucketVerification(opened, deep=deep, on_progress=show)
            async for finding in verification.findings():
                damaged = damaged or finding.severity is Severity.ERROR
                print(_json_line(finding) if as_json else f"{finding.severity.value}: {finding.key}: {finding.text}")
    looked = verification.progress
    complain(f"{looked.objects} objects, {size_text(looked.size_bytes)}: {'DAMAGED' if damaged else 'sound'}")
    return damaged


@contextlib.asynccontextmanager
async def _opened(store: str) -> AsyncIterator[ObjectStore]:
    """The store at `store`, which has to be there already: to look at a bucket must not make one."""
    from tidelog.storage.runtime import Runtime
    from tidelog.storage.stores.opening import open_store

    check_there(store)
    opened = open_store(store, runtime=Runtime())
    try:
        yield opened
    finally:
        await opened.aclose()


async def _list(store: str, prefix: str, *, as_json: bool) -> None:
    from tidelog.storage.object_store import list_all

    objects = size_bytes = 0
    async with _opened(store) as opened:
        async for info in list_all(opened, prefix):
            print(_json_line(info) if as_json else _line(info))
            objects += 1
            size_bytes += info.size
    if not as_json:
        print(f"{objects} objects, {size_text(size_bytes)}")


def check_there(store: str) -> None:
    """Raises `NotFound` for a folder that is not there."""
    path = Path(store.removeprefix("file:"))
    if store.startswith("file:") and not store.startswith("file://") and not path.is_dir():
        raise NotFound(f"there is no folder {path}: name the broker's store with --store or TIDELOG_STORE")


def _line(info: ObjectInfo) -> str:
    return f"{size_text(info.size):>9}  {time_text(info.modified_ms)}  {info.key}"


def _json_line(value: object) -> str:
    return msgspec.json.encode(value).decode()
