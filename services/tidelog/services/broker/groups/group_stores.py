"""Where the groups of this broker's shards are stored: the seam to the bucket or to the key-value store."""

from __future__ import annotations

from typing import Protocol

from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.group_store import GroupStore, HeadPage


class GroupStores(Protocol):
    """All methods may be called at the same time."""

    def of(self, shard: int, epoch: int) -> GroupStore:
        """The store for this broker's leadership of `shard` in `epoch`. Raises `LeaderUnknown`."""
        ...

    async def heads(self, after: str, limit: int) -> HeadPage:
        """As `GroupStore.heads`, on a broker that may lead nothing. Raises `Unavailable`."""
        ...

    def reachable(self) -> bool:
        """Whether the store answers, as far as is known without a request."""
        ...

    def copy_age_s(self) -> float:
        """For how long the oldest committed offset waits for its copy in the bucket; 0 if none does."""
        ...

    async def aclose(self) -> None:
        """Stop background work. Call it when no coordinator writes any more."""
        ...


class SoleGroupStores:
    """One store for all shards, for a broker that leads all of them."""

    def __init__(self, store: BucketGroupStore) -> None:
        self._store = store

    def of(self, _shard: int, _epoch: int) -> GroupStore:
        return self._store

    async def heads(self, after: str, limit: int) -> HeadPage:
        return await self._store.heads(after, limit)

    def reachable(self) -> bool:
        return True

    def copy_age_s(self) -> float:
        """The bucket is the store: there is no copy."""
        return 0.0

    async def aclose(self) -> None:
        await self._store.aclose()
