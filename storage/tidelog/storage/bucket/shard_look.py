"""The manifest of a shard, as a tool reads it that walks a bucket for hours while brokers append versions."""

from __future__ import annotations

from tidelog.storage.bucket.finding import UNREADABLE, Finding, error, unreadable
from tidelog.storage.errors import Conflict, Corrupt, NewerFormat, NotFound
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

FRESH_LOOKS_MAX = 8
"""How many times a list is looked for in a newer version, because it was collected."""


class ShardLook:
    """`manifest` is the version that was read last, without lists; None if it cannot be read, and then `fault` says
    why. Lists are not kept in memory."""

    def __init__(self, store: ObjectStore, shard: int, runtime: Runtime) -> None:
        self.shard = shard
        self.log = ShardLog(store, shard, runtime, lists_bytes=0)
        self.manifest: ShardManifest | None = None
        self.fault: Finding | None = None

    @property
    def key(self) -> str:
        """The version's object."""
        return self.log.key(max(self.manifest.version if self.manifest else 0, 0))

    async def refresh(self) -> ShardManifest | None:
        """Read the newest version. Raises `Unavailable`."""
        try:
            self.manifest, self.fault = await self.log.newest(), None
        except UNREADABLE as fault:
            harm = f"no archived record of shard {self.shard} can be found without it"
            self.manifest, self.fault = None, unreadable(fault, harm=harm)
        except NotFound as missing:
            self.manifest, self.fault = None, error(self.log.key(0), f"cannot be read: {missing}")
        return self.manifest

    async def topic(self, topic_id: str) -> TopicState | None:
        """The topic with its list; None if the manifest does not have it. Raises `Corrupt`, `NewerFormat` (the list),
        `Unavailable`."""
        for _ in range(FRESH_LOOKS_MAX):
            manifest = self.manifest or await self.refresh()
            if manifest is None:
                return None
            try:
                return (await self.log.with_lists(manifest, [topic_id])).topics.get(topic_id)
            except Conflict:
                await self.refresh()
        raise Conflict(f"the lists of shard {self.shard} were replaced {FRESH_LOOKS_MAX} times while they were read")


class ShardLooks:
    """The manifests of all shards; `known` by shard."""

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self.known: dict[int, ShardLook] = {}

    def __call__(self, shard: int) -> ShardLook:
        return self.known.setdefault(shard, ShardLook(self._store, shard, self._runtime))


def list_harm(fault: Corrupt | NewerFormat, topic: str, shard: int) -> Finding:
    """The finding about a topic's list that cannot be read."""
    harm = (
        f"the archived records of {topic} in shard {shard} cannot be found without it; restore it from a copy of the "
        "bucket, or run `tidelog bucket repair`"
    )
    return unreadable(fault, harm=harm)
