"""What a topic's settings mean for the upkeep of its segments: the one place where the ones become the others."""

from __future__ import annotations

from functools import lru_cache

from tidelog.coordinator.topics.topic import TopicConfig
from tidelog.storage.upkeep.rules import UpkeepRules

DISTINCT_CONFIGS_MAX = 1_024


@lru_cache(DISTINCT_CONFIGS_MAX)  # thousands of topics with the same settings share one value
def upkeep_rules(config: TopicConfig) -> UpkeepRules:
    """The rules for the segments of a topic with `config`."""
    policies = config.cleanup_policy.split(",")
    return UpkeepRules(
        deletes="delete" in policies,
        compacts="compact" in policies,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        key_bloom_filter=config.segment_key_bloom_filter == "true",
        delete_retention_ms=config.delete_retention_ms,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
    )
