"""Which objects under ``_staging/`` nobody needs: areas in which nothing was written for a grace.

A live job keeps writing, and so keeps its whole area. The area of a sink (a Spark stream, `layout.sink_prefix`) has
marks besides staged records, and two rules more:

- **The marks of its newest batch stay for ever**, a few kilobytes. A stream that restarts after a year, from a
  checkpoint that does not know that its last batch ended, finds in them that the batch is published.
- **A batch that is committed and not published** keeps its whole area, and the sweep names it. Its records may be in
  the log in part, and only the staged ones can complete it. The stream does that when it starts again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from tidelog.storage.bucket.finding import Finding, warning
from tidelog.storage.bucket.listing import folders, grouped
from tidelog.storage.layout import COMMITTED, STAGING_PREFIX, sink_mark
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all

IsRipe = Callable[[ObjectInfo], Awaitable[bool]]
Leave = Callable[[Finding], None]


@dataclass
class _Area:
    """What an area holds: how many young objects, and the newest batch with each mark (-1: none)."""

    young: int = 0
    committed: int = -1
    published: int = -1

    def add(self, key: str) -> None:
        if (mark := sink_mark(key)) is None:
            return
        batch, name = mark
        if name == COMMITTED:
            self.committed = max(self.committed, batch)
        else:
            self.published = max(self.published, batch)

    def needs(self, key: str) -> bool:
        """Whether the object is a mark of the newest batch."""
        mark = sink_mark(key)
        return mark is not None and mark[0] == self.published


async def dead_areas(store: ObjectStore, is_ripe: IsRipe, leave: Leave) -> AsyncIterator[Sequence[ObjectInfo]]:
    """The objects that may be deleted, page by page. `leave` is told of areas with an unfinished batch."""
    async for name, _ in folders(store, STAGING_PREFIX):
        if name.endswith("/"):
            async for page in _dead_objects(store, f"{STAGING_PREFIX}{name}", is_ripe, leave):
                yield page


async def _dead_objects(
    store: ObjectStore, prefix: str, is_ripe: IsRipe, leave: Leave
) -> AsyncIterator[Sequence[ObjectInfo]]:
    """Nothing, if an object is young: then the area is listed once, and otherwise again, page by page."""
    area = _Area()
    async for info in list_all(store, prefix):
        area.young += not await is_ripe(info)
        area.add(info.key)
    if area.young:
        return
    if area.committed > area.published:
        leave(warning(prefix, f"batch {area.committed} is not published: start its Spark stream again to complete it"))
        return
    async for _, page in grouped(list_all(store, prefix), lambda _: prefix):
        yield [info for info in page if await is_ripe(info) and not area.needs(info.key)]
