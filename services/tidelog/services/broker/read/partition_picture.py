"""Pictures of a partition as its state is at this moment: for whoever reads the bucket directly, and for metrics."""

from __future__ import annotations

from tidelog.services.broker.api.fetch import PartitionLog
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.telemetry.measurements import PartitionLag


def partition_picture(state: PartitionState, store_url: str) -> PartitionLog:
    """All of it from one version of the manifest (inv. 5)."""
    manifest = state.manifest
    return PartitionLog(
        topic=state.topic,
        topic_id=manifest.topic_partition.topic_id,
        partition=manifest.topic_partition.partition,
        shard=state.shard,
        log_start_offset=manifest.log_start_offset,
        cold_end=manifest.cold_end,
        high_watermark=state.high_watermark,
        manifest_version=manifest.version,
        segments=manifest.segments,
        store_url=store_url,
    )


def lag_of(state: PartitionState) -> PartitionLag:
    """How far the archive is behind."""
    return PartitionLag(state.topic, state.topic_partition.partition, state.cold_end, state.high_watermark)
