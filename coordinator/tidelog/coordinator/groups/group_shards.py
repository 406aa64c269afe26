"""The shard of a group, whose leader coordinates it."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from tidelog.storage.partitioner import murmur2

REMEMBERED = 20_000
"""Names of groups whose shards are kept in memory."""


@lru_cache(maxsize=REMEMBERED)
def shard_of_group(group: str, shards: int) -> int:
    """Kafka's murmur2 of the name, which every broker computes alike. `murmur2` is made for columns of keys; for
    one key it takes about as long as the rest of a call on a group, so the last results are kept."""
    (hashed,) = murmur2(pa.array([group.encode()], pa.binary()))
    return int(hashed & 0x7FFFFFFF) % shards
