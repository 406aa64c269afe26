"""Leadership's two seams: `ShardHost`, which it calls, and `ClusterView`, which the broker reads.

Leadership decides by the key-value store which shards this broker should lead, and tells the `ShardHost` to lead or
release them. The broker asks the `ClusterView` where the other shards are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, LeaderRecord


class ShardHost(Protocol):
    """The broker, as leadership sees it. Leadership never makes two calls for one shard at the same time."""

    async def lead(self, shard: int, epoch: int) -> None:
        """Claim the shard's log in `epoch` and accept requests for it. Raises `Fenced` if the log has seen that epoch
        or a later one, `Unavailable`, `Corrupt`; after an error the shard is not led."""
        ...

    async def release(self, shard: int) -> None:
        """Refuse new requests, commit and answer those accepted, and stop leading. Never raises; in bounded time."""
        ...

    async def abandon(self, shard: int) -> None:
        """Stop at once: another broker leads. Requests that are not committed fail with `Fenced`."""
        ...

    def led(self) -> Mapping[int, int]:
        """The epoch of each shard that is led now, without those that were fenced or have failed."""
        ...


@dataclass(frozen=True)
class CoordinatorHealth:
    """Whether the key-value store answers. `trusted` is False if the store was found wiped or foreign; then nothing is
    taken from it. `reason` says what is wrong and what to do; it is empty if nothing is wrong."""

    reachable: bool
    trusted: bool
    reason: str


class ClusterView(Protocol):
    """The cluster as this broker knows it, from memory: never blocks or raises, and may lag by a moment."""

    def me(self) -> BrokerRecord:
        """This broker."""
        ...

    def brokers(self) -> Sequence[BrokerRecord]:
        """The live brokers, by id."""
        ...

    def draining(self) -> frozenset[str]:
        """The ids of brokers that must lead nothing."""
        ...

    def leaders(self) -> Mapping[int, LeaderRecord]:
        """The leader of each shard that has one."""
        ...

    def leader_of(self, shard: int) -> BrokerRecord | None:
        """The broker that leads `shard`, None if it is unknown."""
        ...

    def surely_leads(self, shard: int, epoch: int) -> bool:
        """Whether this broker certainly leads `shard` in `epoch` now: its key is under a lease that certainly lasts.
        False means "unknown": the log can tell."""
        ...

    def health(self) -> CoordinatorHealth: ...

    async def changed(self, timeout_s: float) -> None:
        """Return at the next change of any of this, or after `timeout_s`."""
        ...
