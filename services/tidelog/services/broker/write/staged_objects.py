"""Staged objects in the bucket: `api.Staging`.

The bucket decides: an object is created once, and then it never changes. So an object that a commit of a sink names is
the same for every broker that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.api.staging import StagedRef
from tidelog.storage.errors import AlreadyExists, Conflict, NoSuchObject, NotFound
from tidelog.storage.layout import sink_prefix
from tidelog.storage.object_store import Body, ByteRange, ObjectInfo, ObjectStore
from tidelog.wire.staging import PAGE_MAX, StagedObject, StagedPage, batch_and_name, staged_path


class StagedObjects:
    """The staged objects of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def create(self, _context: RequestContext, /, ref: StagedRef, data: Body) -> None:
        try:
            await self._store.create(_key(ref), data)
        except Conflict:
            raise AlreadyExists(f"batch {ref.batch} of sink {ref.sink} has an object {ref.name} already") from None

    async def read(self, _context: RequestContext, /, ref: StagedRef, byte_range: ByteRange | None = None) -> bytes:
        try:
            return (await self._store.get(_key(ref), byte_range)).data
        except NoSuchObject:
            raise NotFound(f"batch {ref.batch} of sink {ref.sink} has no object {ref.name}") from None

    async def page(self, _context: RequestContext, /, sink: str, after: str) -> StagedPage:
        infos, prefix = await self._infos(sink, after), sink_prefix(sink)
        found = (
            StagedObject(*place, info.size, info.modified_ms)
            for info in infos
            if (place := batch_and_name(info.key.removeprefix(prefix)))
        )
        return StagedPage(tuple(found), infos[-1].key.removeprefix(prefix) if len(infos) == PAGE_MAX else None)

    async def delete(self, _context: RequestContext, /, sink: str, before: str) -> int:
        prefix, deleted, after = sink_prefix(sink), 0, ""
        while True:
            infos = await self._infos(sink, after)
            keys = [info.key for info in infos if not before or info.key < prefix + before]
            if keys:
                await self._store.delete_many(keys)
            deleted += len(keys)
            if len(keys) < PAGE_MAX:
                return deleted
            after = keys[-1].removeprefix(prefix)

    async def _infos(self, sink: str, after: str) -> Sequence[ObjectInfo]:
        prefix = sink_prefix(sink)
        return await self._store.list(prefix, start_after=prefix + after if after else "", limit=PAGE_MAX)


def _key(ref: StagedRef) -> str:
    return sink_prefix(ref.sink) + staged_path(ref.batch, ref.name)
