"""Finds the record with the largest timestamp of a partition: Kafka's ListOffsets with -3 (KIP-734).

A segment tells the times of all its records, also those of other partitions. So the largest time of the cold records is
known only between two bounds, and a bisection finds it with the search by time that readers use. The upper bound is
tried first: it is the time itself unless the segment's largest time belongs to another partition. Of the hot records
the largest time is known.
"""

from __future__ import annotations

from tidelog.services.broker.read.partition_reader import PartitionReader, Partitions
from tidelog.services.broker.shard.partition_state import PartitionState


async def largest_timestamp(reader: PartitionReader, partitions: Partitions, state: PartitionState) -> int:
    """The offset of the first record with the largest timestamp, the high watermark if there is none."""
    while state.lacks_list:
        await partitions.read_list(state)
    cold = state.view.time_bounds(state.log_start_offset)
    hot_ms = await reader.hot_timestamp_ms(partitions, state)
    low_ms, high_ms = (max(bound, hot_ms) for bound in cold or (hot_ms, hot_ms))
    found = await reader.first_at(partitions, state, high_ms)
    if found < state.high_watermark or low_ms == high_ms:
        return found
    found = await reader.first_at(partitions, state, low_ms)
    while high_ms - low_ms > 1:  # there is a record at or after low_ms, and none at or after high_ms
        middle_ms = (low_ms + high_ms) // 2
        offset = await reader.first_at(partitions, state, middle_ms)
        if offset < state.high_watermark:
            low_ms, found = middle_ms, offset
        else:
            high_ms = middle_ms
    return found
