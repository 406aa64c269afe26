"""Random histories of a topic in a shard: passes of an archiver, merges and expiry, as changes of a manifest, beside
the plain facts by which tests judge them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from tidelog.storage.bucket.replay import Replay, links_of
from tidelog.storage.layout import shard_segment_key
from tidelog.storage.manifests.shard_history import HistoryBlock
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange, applied
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.wal.floor import Floor

TOPIC, TOPIC_ID = "web", "0" * 32
SHARD = 3


def block_fault(block: HistoryBlock) -> str | None:
    """What a replay says of the heads in `block`; None if they follow from each other."""
    replay = Replay(block.shard, is_begun=True)
    faults = [fault for link in links_of("key", block) if (fault := replay.take(link))]
    return faults[0].text if faults else None


@dataclass
class TopicHistory:
    """Appends to `manifest`. `holders` says which segment holds an offset of a partition now."""

    random: Random
    partitions: int = 5
    manifest: ShardManifest = field(default_factory=lambda: ShardManifest(SHARD))
    holders: dict[tuple[int, int], str] = field(default_factory=dict)
    made: int = 0

    def step(self) -> ManifestChange:
        """A random change, applied."""
        change = self.random.choice([self.archived, self.archived, self.merged, self.expired])()
        self.manifest = applied(self.manifest, change)
        return change

    def archived(self) -> ManifestChange:
        """A pass: records of some partitions, in one segment."""
        draw = self.random
        spans, states = [], {}
        for partition in sorted(draw.sample(range(self.partitions), draw.randint(1, self.partitions))):
            end, count = self.end(partition), draw.randint(1, 9)
            spans.append(SegmentSpan(partition, end, end + count - 1, count, 100 * count))
            states[partition] = self.state(partition, cold_end=end + count)
        segment = self.segment(self.next_run(), 0, spans)
        floor = Floor(self.manifest.floor.number + draw.randint(1, 5), draw.randint(0, 3))
        return ManifestChange(
            ChangeKind.ARCHIVE, {TOPIC_ID: TopicChange(TOPIC, added=(segment,), partitions=states)}, floor
        )

    def merged(self) -> ManifestChange:
        """The oldest runs become one of level 2, of several segments."""
        topic = self.manifest.topics.get(TOPIC_ID)
        small = [segment for segment in topic.segments if segment.level < 2] if topic else []
        if not small:
            return self.archived()
        runs = sorted({segment.run for segment in small})[: self.random.randint(1, 4)]
        inputs = [segment for segment in small if segment.run in runs]
        ranges: dict[int, list[SegmentSpan]] = defaultdict(list)
        for segment in inputs:
            for span in segment.spans:
                ranges[span.partition].append(span)
        joined = [
            SegmentSpan(p, min(s.base_offset for s in spans), max(s.last_offset for s in spans), 0, 0)
            for p, spans in sorted(ranges.items())
        ]
        sized = [
            SegmentSpan(s.partition, s.base_offset, s.last_offset, s.next_offset - s.base_offset, 7) for s in joined
        ]
        cut = self.random.randint(0, len(sized) - 1)
        outputs = [self.segment(runs[0], 2, part) for part in (sized[:cut], sized[cut:]) if part]
        removed = tuple(segment.key for segment in inputs)
        return ManifestChange(ChangeKind.MERGE, {TOPIC_ID: TopicChange(TOPIC, removed, tuple(outputs))})

    def expired(self) -> ManifestChange:
        """The oldest run leaves, and its partitions begin after it."""
        topic = self.manifest.topics.get(TOPIC_ID)
        oldest = next(iter(topic.segments), None) if topic else None
        if topic is None or oldest is None:
            return self.archived()
        left = [segment for segment in topic.segments if segment.run == oldest.run]
        states = {
            span.partition: self.state(span.partition, log_start_offset=span.next_offset)
            for segment in left
            for span in segment.spans
        }
        self.holders = {place: key for place, key in self.holders.items() if key not in {each.key for each in left}}
        removed = tuple(segment.key for segment in left)
        return ManifestChange(ChangeKind.EXPIRE, {TOPIC_ID: TopicChange(TOPIC, removed, partitions=states)})

    def segment(self, run: int, level: int, spans: list[SegmentSpan]) -> TopicSegment:
        self.made += 1
        segment_id = f"{self.made:032x}"
        key = shard_segment_key(TOPIC, TOPIC_ID, SHARD, segment_id)
        for span in spans:
            for offset in range(span.base_offset, span.next_offset):
                self.holders[span.partition, offset] = key
        sha256 = hashlib.sha256(segment_id.encode()).hexdigest()
        return TopicSegment(key, run, level, 1_000, sha256, 1, 2 + run, 5, tuple(spans))

    def next_run(self) -> int:
        topic = self.manifest.topics.get(TOPIC_ID)
        return topic.next_run if topic else 0

    def end(self, partition: int) -> int:
        return self.known(partition).cold_end

    def state(self, partition: int, **changes: int) -> ColdState:
        known = self.known(partition)
        offsets = {"log_start_offset": known.log_start_offset, "cold_end": known.cold_end, **changes}
        return ColdState(**offsets)

    def known(self, partition: int) -> ColdState:
        topic = self.manifest.topics.get(TOPIC_ID)
        return topic.partition(partition) if topic else ColdState()
