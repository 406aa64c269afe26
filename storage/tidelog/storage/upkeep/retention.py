"""Retention: the oldest records of a partition are removed once they are too old or too much is kept, as in Kafka.

A *span* is the part of a segment that belongs to one partition (`shard_values`). From a partition's oldest span on, a
span expires while one of these holds; the first that stays ends it:

- The largest timestamp of its segment is more than ``retention.ms`` ago. So a record with a timestamp in the future
  keeps its segment, and all later spans of the partitions in it.
- The partition still has ``retention.bytes`` in the spans after it. A span has the share of its segment's stored bytes
  that its records have of the segment's raw bytes.
- It lies wholly below the log start (`delete-records` moved that).

The first two apply if ``cleanup.policy`` has ``delete``; `UNLIMITED` turns each off. The hot tail is neither counted
nor cut, and becomes segments within minutes.

The log start of a partition moves to its first span that stays. One version moves those of all partitions of a topic,
and in it each segment leaves the list of which no partition has records left (`log_starts`). So a reader sees the log
before or after (inv. 5), and no version names a deleted object: objects are deleted a grace later (`collect`).

Source: ``UnifiedLog.deleteOldSegments`` of Apache Kafka 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidelog.storage.manifests.json_envelope import Ints
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.log_starts import PartitionSpans, spans_of
from tidelog.storage.upkeep.rules import UNLIMITED, UpkeepRules
from tidelog.storage.upkeep.task import TopicInShard

NEVER_MS = 2**63 - 1

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Expiry:
    """Which spans of a topic expire at `now_ms`. Arrays are in the order of `spans`."""

    spans: PartitionSpans
    rules: UpkeepRules
    now_ms: int

    @cached_property
    def first_kept(self) -> Ints:
        """For each partition, the place of its first span that stays, or its end."""
        place = np.arange(len(self.spans.order))
        expired = self._below | (self._expires_at_ms <= self.now_ms) | self._too_much
        stays = np.where(expired, len(place), place)
        return np.minimum(np.minimum.reduceat(stays, self.spans.first), self.spans.end)

    @cached_property
    def log_starts(self) -> Ints:
        """Of the partitions, once their expired spans are removed."""
        spans, kept = self.spans, self.first_kept
        begins = np.array([state.cold_end for state in spans.states], np.int64)
        some = kept < spans.end
        begins[some] = spans.columns.base_offset[spans.order[kept[some]]]
        moves = kept - spans.first > np.add.reduceat(self._below, spans.first, dtype=np.int64)
        return np.where(moves, begins, spans.log_starts)

    def change(self, topic: str) -> TopicChange | None:
        """None: nothing expires now."""
        return self.spans.change(topic, self.log_starts)

    @property
    def next_at_ms(self) -> int | None:
        """When the first of the records that stay are too old; None: never."""
        kept = self.first_kept
        oldest = self._expires_at_ms[kept[kept < self.spans.end]]
        next_ms = int(np.min(oldest, initial=NEVER_MS))
        return None if next_ms == NEVER_MS else next_ms

    @cached_property
    def _below(self) -> Bools:
        """Whether a span lies wholly below the log start."""
        return self.spans.columns.last_offset[self.spans.order] < self.spans.log_starts[self.spans.group]

    @cached_property
    def _expires_at_ms(self) -> Ints:
        """When a span is too old: Kafka deletes segments older than ``retention.ms``, not those exactly as old."""
        columns, kept_ms = self.spans.columns, self.rules.retention_ms
        if not self.rules.deletes or kept_ms == UNLIMITED:
            return np.full(len(self.spans.order), NEVER_MS)
        expires_at_ms = np.minimum(columns.max_timestamp_ms, NEVER_MS - 1 - kept_ms) + kept_ms + 1
        return expires_at_ms[columns.segment_of_span[self.spans.order]]

    @property
    def _too_much(self) -> Bools:
        """Whether the spans after a span have ``retention.bytes`` of its partition."""
        spans, kept_bytes = self.spans, self.rules.retention_bytes
        if not self.rules.deletes or kept_bytes == UNLIMITED:
            return np.zeros(len(spans.order), np.bool_)
        reached = np.cumsum(spans.columns.span_bytes[spans.order])
        return reached[spans.end - 1][spans.group] - reached >= kept_bytes


def plan_expiry(topic: TopicState, rules: UpkeepRules, now_ms: int) -> Expiry | None:
    """The expiry of `topic`, whose list was read; None if it has no segments."""
    return Expiry(spans_of(topic), rules, now_ms) if len(topic.segments) else None


class ExpireTask:
    """The `UpkeepTask` of retention. One step removes all that has expired of a topic."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules, now_ms: int) -> int | None:
        """The exact time when records expire next; None if none ever do."""
        expiry = plan_expiry(topic.state, rules, now_ms)
        if expiry is None:
            return None
        return now_ms if expiry.change(topic.place.topic) else expiry.next_at_ms

    async def run(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> ShardManifest | None:
        manifest = await log.with_lists(log.known or await log.latest(), [place.topic_id])
        topic = manifest.topics.get(place.topic_id)
        expiry = plan_expiry(topic, rules, self._clock.now_ms()) if topic else None
        change = expiry.change(place.topic) if expiry else None
        if change is None:
            return None
        return await log.append(ManifestChange(ChangeKind.EXPIRE, {place.topic_id: change}), manifest)
