"""A topic as a value: Kafka's rules for its name, its settings under Kafka's names, the limits, and the shards of its
partitions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from tidelog.storage.errors import Invalid
from tidelog.storage.layout import TopicPartition
from tidelog.storage.upkeep.rules import UpkeepRules

TOPIC_NAME_CHARS_MAX = 249
PARTITIONS_MAX = 100_000
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

UNLIMITED = -1
SEGMENT_BYTES_MAX = 1 << 30
"""Every store takes an object of this size, and of the third more that a final segment may have, in one request."""
CLEANUP_POLICIES = ("delete", "compact", "compact,delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def checked_topic_name(name: str) -> str:
    """`name`, if it follows Kafka's rules (1 to 249 of ``a-z A-Z 0-9 . _ -``, not ``.`` or ``..``). Raises
    `Invalid`."""
    if len(name) > TOPIC_NAME_CHARS_MAX or name in (".", "..") or not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:300]!r} is not a topic name: use 1 to {TOPIC_NAME_CHARS_MAX} of a-z A-Z 0-9 . _ -, "
            "not '.' or '..'",
            field="topic",
        )
    return name


def _config(
    kafka_name: str,
    default: int | float | str,
    low: int | None = None,
    high: int = 2**63 - 1,
    choices: tuple[str, ...] = (),
) -> Any:
    metadata = {"kafka": kafka_name, "default": default, "low": low, "high": high, "choices": choices}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class TopicConfig:
    """A topic's settings, with Kafka's names, defaults and bounds as metadata of the fields."""

    retention_ms: int = _config("retention.ms", 604_800_000, low=UNLIMITED)
    retention_bytes: int = _config("retention.bytes", UNLIMITED, low=UNLIMITED)
    cleanup_policy: str = _config("cleanup.policy", "delete", choices=CLEANUP_POLICIES)
    delete_retention_ms: int = _config("delete.retention.ms", 86_400_000, low=0)
    min_compaction_lag_ms: int = _config("min.compaction.lag.ms", 0, low=0)
    max_compaction_lag_ms: int = _config("max.compaction.lag.ms", 2**63 - 1, low=1)
    min_cleanable_dirty_ratio: float = _config("min.cleanable.dirty.ratio", 0.5)
    segment_bytes: int = _config("segment.bytes", 134_217_728, low=1_048_576, high=SEGMENT_BYTES_MAX)
    segment_ms: int = _config("segment.ms", 604_800_000, low=1)
    file_delete_delay_ms: int = _config("file.delete.delay.ms", 86_400_000, low=0)
    segment_key_bloom_filter: str = _config("segment.key.bloom.filter", "false", choices=("false", "true"))
    max_message_bytes: int = _config("max.message.bytes", 1_048_588, low=0)
    message_timestamp_type: str = _config("message.timestamp.type", "CreateTime", choices=TIMESTAMP_TYPES)

    def altered(self, changes: Mapping[str, str | int | None]) -> TopicConfig:
        """These settings with `changes`, by Kafka's names; None restores the default. `Invalid` names the wrong one."""
        known = {f.metadata["kafka"]: f for f in fields(self)}
        values: dict[str, int | float | str] = {}
        for name, value in changes.items():
            if name not in known:
                raise Invalid(f"{name!r} is not a topic config; the known are {', '.join(sorted(known))}", field=name)
            spec = known[name]
            default: int | float | str = spec.metadata["default"]
            values[spec.name] = default if value is None else _parsed(name, value, spec.metadata)
        return replace(self, **values)  # type: ignore[arg-type]

    def as_kafka(self) -> dict[str, str]:
        """All settings as text, by Kafka's names."""
        return {f.metadata["kafka"]: str(getattr(self, f.name)) for f in fields(self)}


def _parsed(name: str, value: str | int, spec: Mapping[str, Any]) -> int | float | str:
    default, low, high, choices = (spec[key] for key in ("default", "low", "high", "choices"))
    if isinstance(default, str):
        text = ",".join(sorted(part.strip() for part in str(value).split(",")))
        if text not in choices:
            raise Invalid(f"{name} is one of {' | '.join(choices)}, not {str(value)[:80]!r}", field=name)
        return text
    if isinstance(default, float):
        return _parsed_ratio(name, value)
    try:
        number = int(str(value))
    except ValueError:
        raise Invalid(f"{name} is a whole number, not {str(value)[:80]!r}", field=name) from None
    if low is not None and not low <= number <= high:
        raise Invalid(f"{name} is a number from {low} to {high}, not {number}", field=name)
    return number


def _parsed_ratio(name: str, value: str | int) -> float:
    try:
        ratio = float(value)
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio <= 1:
        raise Invalid(f"{name} is a number from 0 to 1, not {str(value)[:80]!r}", field=name)
    return ratio


@dataclass(frozen=True)
class Topic:
    """`shards[p]` is the shard of partition `p`. It is fixed when the partition is created."""

    name: str
    topic_id: str
    shards: tuple[int, ...]
    config: TopicConfig = field(default_factory=TopicConfig)
    created_at_ms: int = 0

    @property
    def partition_count(self) -> int:
        return len(self.shards)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic_id, number)


@dataclass(frozen=True)
class TopicLimits:
    """The most topics, the most partitions of one topic, and the most partitions of all topics: a broker keeps each of
    them in memory. If a limit is lowered, existing topics stay; only additions are refused."""

    topics: int = 10_000
    topic_partitions: int = 10_000
    partitions: int = 100_000

    def check_new(self, existing: Sequence[Topic], partitions: int) -> None:
        """Raises `Invalid` if a topic of `partitions` cannot be added to the `existing` topics."""
        if len(existing) >= self.topics:
            raise Invalid(
                f"there are {len(existing):,} topics, and topics.max is {self.topics:,}: delete some, or raise it",
                field="name",
            )
        self._check_partitions(existing, partitions, partitions)

    def check_grown(self, existing: Sequence[Topic], topic: Topic, partitions: int) -> None:
        """Raises `Invalid` if `topic`, one of the `existing`, cannot grow to `partitions`."""
        if partitions != topic.partition_count:
            self._check_partitions(existing, partitions, partitions - topic.partition_count)

    def _check_partitions(self, existing: Sequence[Topic], partitions: int, added: int) -> None:
        if not 1 <= partitions <= self.topic_partitions:
            raise Invalid(
                f"a topic has 1 to {self.topic_partitions:,} partitions (topic.partitions.max), not {partitions}",
                field="partitions",
            )
        total = sum(topic.partition_count for topic in existing) + added
        if added > 0 and total > self.partitions:
            raise Invalid(
                f"all topics would have {total:,} partitions, and partitions.max is {self.partitions:,}: "
                "ask for fewer, delete topics, or raise it",
                field="partitions",
            )


@lru_cache(1_024)  # thousands of topics with the same settings share one value
def upkeep_rules(config: TopicConfig) -> UpkeepRules:
    """The rules for the upkeep of the segments of a topic with `config`."""
    policies = config.cleanup_policy.split(",")
    return UpkeepRules(
        deletes="delete" in policies,
        compacts="compact" in policies,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        grace_ms=config.file_delete_delay_ms,
        key_bloom_filter=config.segment_key_bloom_filter == "true",
        delete_retention_ms=config.delete_retention_ms,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
    )
