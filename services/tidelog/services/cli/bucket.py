"""`tidelog bucket ls`, and the parts that all commands of `tidelog bucket` share: they open a bucket without a broker
and print one item per line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidelog.services.cli.console import size_text, time_text
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from tidelog.storage.errors import NotFound

if TYPE_CHECKING:
    from tidelog.coordinator.topics.journal_topics import JournalTopics
    from tidelog.storage.bucket.finding import Finding
    from tidelog.storage.object_store import ObjectInfo, ObjectStore
    from tidelog.storage.runtime import Runtime


def ls(
    prefix: Annotated[str, typer.Argument(help="Only objects under this prefix, as wal/ or topics/web/.")] = "",
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """List the bucket's objects: size, time of the last change, key. With --json it prints one object per line.

    [dim]tidelog bucket ls topics/web/ --store s3://my-bucket/log[/dim]
    """
    asyncio.run(_list(store, prefix, as_json=as_json))


async def _list(store: str, prefix: str, *, as_json: bool) -> None:
    from tidelog.storage.object_store import list_all

    objects = size_bytes = 0
    async with opened_bucket(store) as bucket:
        async for info in list_all(bucket.store, prefix):
            print(json_line(info) if as_json else _line(info))
            objects += 1
            size_bytes += info.size
    if not as_json:
        print(f"{objects} objects, {size_text(size_bytes)}")


def _line(info: ObjectInfo) -> str:
    return f"{size_text(info.size):>9}  {time_text(info.modified_ms)}  {info.key}"


@dataclass(frozen=True)
class OpenedBucket:
    """An opened bucket, with the clock and the ids of this process."""

    store: ObjectStore
    runtime: Runtime

    def topics(self) -> JournalTopics:
        """The topic metadata in the bucket's journal."""
        from tidelog.coordinator.topics.journal_topics import JournalTopics

        return JournalTopics(self.store, self.runtime)


@contextlib.asynccontextmanager
async def opened_bucket(store: str, *, may_create: bool = False) -> AsyncIterator[OpenedBucket]:
    """Open the bucket at `store`. Raises `NotFound` if it is a folder that does not exist, unless `may_create`: a
    command that only looks at a bucket must not create one."""
    from tidelog.storage.runtime import Runtime
    from tidelog.storage.stores.opening import open_store
    from tidelog.storage.stores.retrying import RetryingObjectStore

    if not may_create:
        check_there(store)
    runtime = Runtime()
    opened = RetryingObjectStore(open_store(store, runtime=runtime), runtime)
    try:
        yield OpenedBucket(opened, runtime)
    finally:
        await opened.aclose()


def check_there(store: str) -> None:
    """Raises `NotFound` if `store` is a folder that does not exist."""
    path = Path(store.removeprefix("file:"))
    if store.startswith("file:") and not store.startswith("file://") and not path.is_dir():
        raise NotFound(f"there is no folder {path}: name the broker's store with --store or TIDELOG_STORE")


def finding_line(finding: Finding) -> str:
    return f"{finding.severity.value}: {finding.key}: {finding.text}"


def json_line(value: object) -> str:
    """`value` (plain values or dataclasses) as one line of JSON."""
    return msgspec.json.encode(value).decode()
