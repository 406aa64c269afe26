"""`tidelog bucket ls | verify`: the bucket itself, without a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidelog.services.cli.console import size_text, time_text
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption

if TYPE_CHECKING:
    from tidelog.storage.object_store import ObjectInfo


def ls(
    prefix: Annotated[str, typer.Argument(help="Only objects under this prefix, as wal/ or topics/web/.")] = "",
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """List the bucket's objects: size, time of the last change, key. With --json an object a line."""
    asyncio.run(_list(store, prefix, as_json=as_json))


async def _list(store: str, prefix: str, *, as_json: bool) -> None:
    from tidelog.storage.object_store import list_all
    from tidelog.storage.runtime import Runtime
    from tidelog.storage.stores.opening import open_store

    opened = open_store(store, runtime=Runtime())
    objects = size_bytes = 0
    try:
        async for info in list_all(opened, prefix):
            print(_json_line(info) if as_json else _line(info))
            objects += 1
            size_bytes += info.size
    finally:
        await opened.aclose()
    if not as_json:
        print(f"{objects} objects, {size_text(size_bytes)}")


def _line(info: ObjectInfo) -> str:
    return f"{size_text(info.size):>9}  {time_text(info.modified_ms)}  {info.key}"


def _json_line(info: ObjectInfo) -> str:
    return msgspec.json.encode(info).decode()
