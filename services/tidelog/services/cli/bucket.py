"""`tidelog bucket ls`, and how the commands of `tidelog bucket` open a store: the bucket itself, without a broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidelog.services.cli.console import size_text, time_text
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from tidelog.storage.errors import NotFound

if TYPE_CHECKING:
    from tidelog.storage.object_store import ObjectInfo, ObjectStore


def ls(
    prefix: Annotated[str, typer.Argument(help="Only objects under this prefix, as wal/ or topics/web/.")] = "",
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """List the bucket's objects: size, time of the last change, key. With --json it prints one object per line.

    [dim]tidelog bucket ls topics/web/ --store s3://my-bucket/log[/dim]
    """
    asyncio.run(_list(store, prefix, as_json=as_json))


@contextlib.asynccontextmanager
async def opened_bucket(store: str) -> AsyncIterator[ObjectStore]:
    """The store at `store`, which has to be there already: to look at a bucket must not make one."""
    from tidelog.storage.runtime import Runtime
    from tidelog.storage.stores.opening import open_store
    from tidelog.storage.stores.retrying import RetryingObjectStore

    check_there(store)
    runtime = Runtime()
    opened = RetryingObjectStore(open_store(store, runtime=runtime), runtime)
    try:
        yield opened
    finally:
        await opened.aclose()


async def _list(store: str, prefix: str, *, as_json: bool) -> None:
    from tidelog.storage.object_store import list_all

    objects = size_bytes = 0
    async with opened_bucket(store) as opened:
        async for info in list_all(opened, prefix):
            print(json_line(info) if as_json else _line(info))
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


def json_line(value: object) -> str:
    """`value` (plain values or dataclasses) as one line of JSON."""
    return msgspec.json.encode(value).decode()
