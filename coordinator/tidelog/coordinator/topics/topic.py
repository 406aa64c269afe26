"""A topic as a value: its name's rules, its settings under Kafka's names, and the shards its partitions live in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tidelog.storage.errors import Invalid
from tidelog.storage.layout import TopicPartition

TOPIC_NAME_CHARS_MAX = 249
PARTITIONS_MAX = 100_000
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

UNLIMITED = -1
CLEANUP_POLICIES = ("delete", "compact", "compact,delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def checked_topic_name(name: str) -> str:
    """`name` if it keeps Kafka's rules (1 to 249 of ``a-z A-Z 0-9 . _ -``, not ``.`` or ``..``), else `Invalid`."""
    if len(name) > TOPIC_NAME_CHARS_MAX or name in (".", "..") or not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:300]!r} is not a topic name: use 1 to {TOPIC_NAME_CHARS_MAX} of a-z A-Z 0-9 . _ -, "
            "not '.' or '..'",
            field="topic",
        )
    return name


def _config(kafka_name: str, default: int | float | str, low: int | None = None, choices: tuple[str, ...] = ()) -> Any:
    metadata = {"kafka": kafka_name, "default": default, "low": low, "choices": choices}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class TopicConfig:
    """A topic's settings with Kafka's defaults. `parse` and `as_kafka` go between these and Kafka's names."""

    retention_ms: int = _config("retention.ms", 604_800_000, low=UNLIMITED)
    retention_bytes: int = _config("retention.bytes", UNLIMITED, low=UNLIMITED)
    cleanup_policy: str = _config("cleanup.policy", "delete", choices=CLEANUP_POLICIES)
    delete_retention_ms: int = _config("delete.retention.ms", 86_400_000, low=0)
    min_compaction_lag_ms: int = _config("min.compaction.lag.ms", 0, low=0)
    max_compaction_lag_ms: int = _config("max.compaction.lag.ms", 2**63 - 1, low=1)
    min_cleanable_dirty_ratio: float = _config("min.cleanable.dirty.ratio", 0.5)
    segment_bytes: int = _config("segment.bytes", 134_217_728, low=1_048_576)
    segment_ms: int = _config("segment.ms", 604_800_000, low=1)
    segment_key_bloom_filter: str = _config("segment.key.bloom.filter", "false", choices=("false", "true"))
    max_message_bytes: int = _config("max.message.bytes", 1_048_588, low=0)
    message_timestamp_type: str = _config("message.timestamp.type", "CreateTime", choices=TIMESTAMP_TYPES)

    def altered(self, changes: Mapping[str, str | int | None]) -> TopicConfig:
        """These settings with `changes` (Kafka's names; None puts the default back). `Invalid` names the culprit."""
        known = {f.metadata["kafka"]: f for f in fields(self)}
        values: dict[str, int | float | str] = {}
        for name, value in changes.items():
            if name not in known:
                raise Invalid(f"{name!r} is not a topic config; the known are {', '.join(sorted(known))}", field=name)
            spec = known[name]
            default: int | float | str = spec.metadata["default"]
            values[spec.name] = (
                default
                if value is None
                else _parsed(name, value, default, spec.metadata["low"], spec.metadata["choices"])
            )
        return replace(self, **values)  # type: ignore[arg-type]

    def as_kafka(self) -> dict[str, str]:
        """Kafka's names and values as text, every setting."""
        return {f.metadata["kafka"]: str(getattr(self, f.name)) for f in fields(self)}


def _parsed(
    name: str, value: str | int, default: int | float | str, low: int | None, choices: tuple[str, ...]
) -> int | float | str:
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
    if low is not None and not low <= number < 2**63:
        raise Invalid(f"{name} is at least {low} and below 2**63, not {number}", field=name)
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
    """`shards[p]` is the shard that partition `p` lives in, fixed when the topic is created."""

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
