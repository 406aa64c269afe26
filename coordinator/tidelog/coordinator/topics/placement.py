"""Which shard a new partition lives in, for life: spread evenly, as a pure function."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from tidelog.coordinator.topics.topic import Topic


def place(partition_count: int, shard_count: int, topics: Iterable[Topic]) -> tuple[int, ...]:
    """Shards for `partition_count` new partitions beside those of `topics`: each goes to the shard that has the
    fewest then, the lowest number first among equals."""
    taken = Counter(shard for topic in topics for shard in topic.shards)
    fewest = [(taken[shard], shard) for shard in range(shard_count)]
    heapq.heapify(fewest)
    placed = []
    for _ in range(partition_count):
        count, shard = fewest[0]
        placed.append(shard)
        heapq.heapreplace(fewest, (count + 1, shard))
    return tuple(placed)
