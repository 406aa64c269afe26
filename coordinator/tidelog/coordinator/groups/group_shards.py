"""The shard of a group, whose leader coordinates it."""

from __future__ import annotations

import pyarrow as pa

from tidelog.storage.partitioner import murmur2


def shard_of_group(group: str, shards: int) -> int:
    """Kafka's murmur2 of the name, which every broker computes alike."""
    (hashed,) = murmur2(pa.array([group.encode()], pa.binary()))
    return int(hashed & 0x7FFFFFFF) % shards
