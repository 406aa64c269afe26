"""The store of groups: what must outlive a coordinator.

    EtcdGroupStore      over the key-value seam, for a cluster; each write is fenced by the leadership of the shard
    BucketGroupStore    for a broker alone: in memory, and in a compacted journal under ``groups/`` in the bucket

The keys and values are those of `stored`. One conformance suite (`tests/coordinator/groups/`) runs against both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.coordinator.groups.group_step import Change


@dataclass(frozen=True)
class HeadPage:
    """Heads of groups by the group's name, in the order of their keys, which differs from that of the names. `more`:
    there are further groups; the next page is that after the last name."""

    heads: Mapping[str, bytes]
    more: bool


class GroupStore(Protocol):
    """The groups that one shard coordinates, for one leadership of it."""

    async def load(self, group: str) -> Mapping[str, bytes]:
        """The head and the parts of `group` by their keys; empty if it does not exist. Raises `Unavailable`,
        `Corrupt`."""
        ...

    async def write(self, changes: Sequence[Change]) -> None:
        """Store `changes` in order, and after those of earlier calls. The changes of one group are applied together or
        not at all. Raises `Fenced` if another broker coordinates the groups now; this store then writes nothing more.
        Raises `Unavailable` or `Denied` if the outcome is unknown: the same changes may be written again."""
        ...

    async def heads(self, after: str, limit: int) -> HeadPage:
        """Up to `limit` groups of all shards after the name `after`. Raises `Unavailable`."""
        ...
