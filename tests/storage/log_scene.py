"""A shard's write-ahead log on a scripted memory store, and the writers that share it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.light_codec import NO_RECORDS, LightWalCodec
from tests.storage.instant_clock import InstantClock
from tests.storage.scripted_store import ScriptedObjectStore

from tidelog.storage.layout import manifests_prefix
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.commit_fsm import State
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.floor_trust import GRACE_S_MIN
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import PreparedEntry, WalHeader
from tidelog.storage.wal.wal_writer import WalWriter

SHARD = 3
FLOOR_LIST = f"list {manifests_prefix(SHARD)}0"
"""The request of a first look at the floor, and of one long after the last."""


def floor_head(version: int = 0) -> str:
    """The request of another look at the floor, while `version` is the next one of the manifest."""
    return f"head {manifests_prefix(SHARD)}{version:020d}.json"


@dataclass
class LogScene:
    """The bucket of all writers, and `store`, the view of one writer, which can be scripted."""

    bucket: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    clock: InstantClock = field(default_factory=InstantClock)

    def __post_init__(self) -> None:
        self.store = ScriptedObjectStore(self.bucket)
        self.runtime = Runtime(self.clock, SeededEntropy(1))
        self.wal = Wal(self.store, SHARD, LightWalCodec(), ShardLog(self.store, SHARD, self.runtime))
        self.writer = WalWriter(self.wal, self.runtime, "writer")
        others = Runtime(self.clock, SeededEntropy(2))
        self.manifests = ShardLog(self.bucket, SHARD, others)
        self.others_wal = Wal(self.bucket, SHARD, LightWalCodec(), self.manifests)
        self.rival = WalWriter(self.others_wal, others, "rival")

    def entry(self, writer: WalWriter | None = None, *, after: WalHeader | None = None) -> PreparedEntry:
        """The next entry of `writer`; the default is this log's own writer."""
        header = (writer or self.writer).next_header(after=after)
        return PreparedEntry(header, self.wal.codec.encode(header, NO_RECORDS))

    async def rival_commits(self, count: int = 1) -> None:
        """Let another leader take over and append `count` entries."""
        await self.rival.claim()
        for _ in range(count):
            await self.rival.commit(self.entry(self.rival))

    async def raise_floor(self, number: int, epoch: int) -> None:
        """Let an archiver move the floor."""
        moved = ManifestChange(ChangeKind.ARCHIVE, floor=Floor(number, epoch))
        await self.manifests.change([], lambda _: moved)

    async def truncate(self, number: int) -> None:
        """Archive everything below `number` and, after a grace, delete it."""
        last = await self.others_wal.header(number - 1)
        await self.raise_floor(number, last.epoch)
        self.clock.now_s += GRACE_S_MIN
        await self.others_wal.delete_below(number)

    async def states(self, count: int) -> list[State]:
        """Return the states after each of `count` steps of the writer."""
        return [await self.writer.step() for _ in range(count)]
