"""A bucket with a journal of groups, and a clock that tests move."""

from __future__ import annotations

from tests.coordinator.groups.group_store_conformance import put
from tests.storage.instant_clock import InstantClock
from tests.storage.scripted_store import ScriptedObjectStore

from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.journal.journal_reading import JournalReader
from tidelog.coordinator.groups.stored import offset_key
from tidelog.storage.layout import EMBEDDED_GROUPS
from tidelog.storage.object_store import list_all
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

GRACE_S = 60.0


OFFSET = offset_key("g", "web", 0)


class Scene:
    """A bucket and a clock that moves only when something sleeps or the test says so."""

    def __init__(self) -> None:
        self.bucket = MemoryObjectStore()
        self.clock = InstantClock()
        self.opened = 0

    def open(self, bucket: object = None, interval_s: float = 0.0) -> tuple[BucketGroupStore, ScriptedObjectStore]:
        """A store over a script of its own."""
        self.opened += 1
        script = ScriptedObjectStore(self.bucket)
        runtime = Runtime(self.clock, SeededEntropy(self.opened))
        return BucketGroupStore(script, runtime, grace_s=GRACE_S, interval_s=interval_s), script

    async def names(self) -> list[str]:
        return [info.key async for info in list_all(self.bucket, "")]

    async def offset(self) -> int:
        """The committed offset, as a reader of the bucket finds it."""
        keys = (await JournalReader(self.bucket, EMBEDDED_GROUPS).read()).keys
        return int(keys.get(OFFSET) or -1)


async def compacted(store: BucketGroupStore) -> None:
    """Let compaction finish."""
    if store._compacting:
        await store._compacting


async def commit_until_deleted(scene: Scene, store: BucketGroupStore, number: int) -> int:
    """Commit offsets until entry `number` is deleted; returns the last offset."""
    offset, name = 100, f"groups/embedded/{number:020d}.json"
    await store.write([put(OFFSET, str(offset))])
    assert name in await scene.names()
    while name in await scene.names():
        offset += 1
        await store.write([put(OFFSET, str(offset))])
        await compacted(store)
        scene.clock.now_s += GRACE_S / 4
    return offset


def last(names: list[str], prefix: str) -> str:
    return max(name for name in names if name.startswith(prefix))
