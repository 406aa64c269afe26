"""The staged objects of one sink, for Spark's processes.

Marks and listings go through a broker, which creates an object only if it is absent. Staged records, which are large,
are written to the bucket directly if this process reaches it (`DirectStaging`), otherwise through the broker as well.
Their names are unique, so nobody else writes them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

import msgspec
from pyarrow.fs import FileSystem

from tidelog.spark_connector.reads.broker_connection import BrokerConnection, Buffer
from tidelog.storage.errors import AlreadyExists, Denied, Unavailable
from tidelog.storage.layout import sink_prefix
from tidelog.storage.object_store import Body
from tidelog.storage.stores.arrow_files import arrow_files
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.wire.staging import StagedObject, StagedPage, sink_target, staged_path, staged_target

BYTES = "application/octet-stream"
THROUGH_BROKER = "broker"


class Staging(Protocol):
    """Writes staged records."""

    def stage(self, batch: int, name: str, data: memoryview) -> None:
        """Write an object whose name nobody else uses. It is durable when this returns. Raises `Unavailable`,
        `Denied`."""


class StagingArea:
    """The objects of `sink`, through a broker."""

    def __init__(self, sink: str, connection: BrokerConnection) -> None:
        self.sink = sink
        self._connection = connection

    def stage(self, batch: int, name: str, data: Buffer) -> None:
        self.create(batch, name, data)

    def create(self, batch: int, name: str, data: Buffer) -> bool:
        """Write an object if it is absent. False: there is one, perhaps of an attempt of this call."""
        try:
            self._connection.put(staged_target(self.sink, batch, name), data, BYTES)
        except AlreadyExists:
            return False
        return True

    def read(self, batch: int, name: str) -> bytes:
        """Raises `NotFound`."""
        return self._connection.get(staged_target(self.sink, batch, name), BYTES)

    def objects(self) -> list[StagedObject]:
        """All objects, by batch and name."""
        target = sink_target(self.sink)
        page = msgspec.json.decode(self._connection.get(target), type=StagedPage)
        found = [*page.objects]
        while page.next is not None:
            body = self._connection.get(f"{target}?after={quote(page.next, safe='')}")
            page = msgspec.json.decode(body, type=StagedPage)
            found += page.objects
        return found

    def delete_before(self, batch: int, name: str) -> None:
        """Delete the objects before that place."""
        self._connection.delete(f"{sink_target(self.sink)}?before={quote(staged_path(batch, name), safe='')}")

    def delete_all(self) -> None:
        self._connection.delete(sink_target(self.sink))


class LocalStaging:
    """Writes to a bucket in a directory that this machine has, too. As in any write to it, the object is synced."""

    def __init__(self, sink: str, root: Path) -> None:
        self._prefix = sink_prefix(sink)
        self._root = root

    def stage(self, batch: int, name: str, data: memoryview) -> None:
        asyncio.run(self._create(self._prefix + staged_path(batch, name), data))

    async def _create(self, key: str, data: Body) -> None:
        store = LocalObjectStore(self._root)
        try:
            await store.create(key, data)
        finally:
            await store.aclose()


class S3Staging:
    """Writes to a bucket on S3 with pyarrow, which takes the AWS variables of this process."""

    def __init__(self, sink: str, url: str, files: FileSystem, root: str) -> None:
        self._prefix = f"{root}/{sink_prefix(sink)}"
        self._url = url
        self._files = files

    def stage(self, batch: int, name: str, data: memoryview) -> None:
        try:
            with self._files.open_output_stream(self._prefix + staged_path(batch, name)) as stream:
                stream.write(data)
        except OSError as error:
            kind = Denied if "ACCESS_DENIED" in str(error) else Unavailable
            raise kind(
                f"{self._url} did not take staged records: {error}. If executors cannot write to the bucket, set the "
                f"option store={THROUGH_BROKER}"
            ) from error


def staging_of(area: StagingArea, store: str | None, connection: BrokerConnection) -> Staging:
    """Where this process stages records. `store`: the option. Without it, a directory that this machine lacks, and a
    store that only the broker reaches, are no error: the records go through the broker."""
    url = store or connection.cluster().store
    address = urlsplit(url)
    if url == THROUGH_BROKER or address.scheme == "memory":
        return area
    if address.scheme == "file":
        root = Path(unquote(address.path))
        return LocalStaging(area.sink, root) if store or root.is_dir() else area
    return S3Staging(area.sink, url, *arrow_files(url))
