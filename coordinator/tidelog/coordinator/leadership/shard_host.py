"""Leadership's two sides: what it asks of a broker, and what it tells one.

`leadership` decides by the key-value store which shards this broker should lead and asks the `ShardHost` to lead or
release them; the broker asks the `ClusterView` where everything else is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, LeaderRecord


class ShardHost(Protocol):
    """A broker, as leadership sees it. Calls for one shard never overlap."""

    async def lead(self, shard: int, epoch: int) -> None:
        """Claim the shard's log in `epoch` and take requests for it. Raises `Fenced` if the log has seen that epoch or
        a later one, `Unavailable`, `Corrupt`; the shard is not led then."""
        ...

    async def release(self, shard: int) -> None:
        """Refuse what is new, commit and answer what was taken, let go. Never raises; in bounded time."""
        ...

    async def abandon(self, shard: int) -> None:
        """Another leads: stop at once. What was not committed fails with `Fenced`."""
        ...

    def led(self) -> Mapping[int, int]:
        """The epoch of every shard led now; one that was fenced or failed is not among them."""
        ...


@dataclass(frozen=True)
class CoordinatorHealth:
    """Whether the key-value store answers. `reason` says what is wrong and what to do, empty if nothing is;
    `trusted`: False if it was found wiped or foreign, so that nothing may be taken from it."""

    reachable: bool
    trusted: bool
    reason: str


class ClusterView(Protocol):
    """What is known of the cluster now, from memory: never blocks, never raises; may lag a moment behind."""

    def me(self) -> BrokerRecord:
        """This broker."""
        ...

    def brokers(self) -> Sequence[BrokerRecord]:
        """Those that live, by id."""
        ...

    def draining(self) -> frozenset[str]:
        """Ids of brokers that are to lead nothing."""
        ...

    def leaders(self) -> Mapping[int, LeaderRecord]:
        """The leader of every shard that has one."""
        ...

    def leader_of(self, shard: int) -> BrokerRecord | None:
        """The broker that leads `shard`, None while it is not known."""
        ...

    def surely_leads(self, shard: int, epoch: int) -> bool:
        """Whether this broker certainly leads `shard` in `epoch` at this moment: its key is under a lease that
        certainly lasts. False means "unknown": the log can tell."""
        ...

    def health(self) -> CoordinatorHealth: ...

    async def changed(self, timeout_s: float) -> None:
        """Return at the next change of any of this, or after `timeout_s`."""
        ...
