"""All of a topic in a shard, compacted or merged at once: for jobs that have a cluster for it.

    rewrite = await planned(rewriter, place, manifest, rules, now_ms)      # None: there is nothing to do
    made = [... for part in rewrite.parts]         # split_rewrite.made_part, each by any process
    manifest = await uploads.append_uploaded(log, place.topic_id, rewrite.successor(made), manifest.version)

Upkeep takes small steps, each with a version of its own, because it shares a process with others. Here one version
replaces everything. If the topic is compacted by key and has dirty records, the rewrite is a pass of compaction.
Otherwise all runs that are not final become final. Two workers on a topic are safe: the append of the slower one is a
`Conflict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_upload import Successor
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.segments.topic_segment import IDLE_SEGMENT_FLAVOR, SEGMENT_FLAVOR, SegmentPlace
from tidelog.storage.upkeep.compact_keys import rows_that_go
from tidelog.storage.upkeep.compact_plan import cleaned_states, plan_compaction, plan_steps, replaced
from tidelog.storage.upkeep.key_spill import spread_hash
from tidelog.storage.upkeep.merge import dead_rows
from tidelog.storage.upkeep.merge_plan import MergePolicy, mergeable, merged
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.split_rewrite import Part, as_one_run, split
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL, segments_of_runs

RAW_BYTES_FACTOR = 8
"""A part has about this many times the raw bytes of the stored bytes that a segment should have."""


@dataclass(frozen=True)
class Stretch:
    """Neighbouring runs, of which the segments are `inputs`. They become one, in `parts`."""

    inputs: tuple[TopicSegment, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class WholeRewrite:
    """`clean_ends`: after it, keys are there once below them, by partition. `now_ms`: when it was planned."""

    place: SegmentPlace
    rules: UpkeepRules
    kind: ChangeKind
    stretches: tuple[Stretch, ...]
    clean_ends: Mapping[int, int]
    now_ms: int

    @property
    def parts(self) -> Sequence[Part]:
        return [part for stretch in self.stretches for part in stretch.parts]

    @property
    def inputs(self) -> Sequence[TopicSegment]:
        return [segment for stretch in self.stretches for segment in stretch.inputs]

    @property
    def level(self) -> int:
        """Of what it makes. Compacted runs may be merged like new ones."""
        return 0 if self.kind is ChangeKind.COMPACT else FINAL_LEVEL

    @property
    def flavor(self) -> ParquetFlavor:
        flavor = SEGMENT_FLAVOR if self.kind is ChangeKind.COMPACT else IDLE_SEGMENT_FLAVOR
        return replace(flavor, bloom_column="key") if self.rules.key_bloom_filter else flavor

    def successor(self, made: Sequence[Sequence[TopicSegment]]) -> Successor:
        """The change that puts what was `made` of each of the parts, in their order, in the place of the inputs."""
        results = iter(made)
        runs = [
            as_one_run(stretch.inputs, (segment for part in islice(results, len(stretch.parts)) for segment in part))
            for stretch in self.stretches
        ]

        def change(latest: ShardManifest, _uploaded: Sequence[TopicSegment]) -> ManifestChange:
            topic = latest.topics.get(self.place.topic_id)
            if topic is None:
                raise Conflict("the topic left the shard while its segments were being rewritten")
            return ManifestChange(self.kind, {self.place.topic_id: self._change(topic, runs)})

        return change

    def _change(self, topic: TopicState, runs: Sequence[Sequence[TopicSegment]]) -> TopicChange:
        if self.kind is ChangeKind.COMPACT:
            change = replaced(topic, self.inputs, [segment for run in runs for segment in run])
            return replace(change, partitions=cleaned_states(topic, self.clean_ends, self.rules, self.now_ms))
        changes = [merged(topic, stretch.inputs, run) for stretch, run in zip(self.stretches, runs, strict=True)]
        removed = tuple(key for change in changes for key in change.removed)
        return TopicChange(topic.name, removed, tuple(segment for change in changes for segment in change.added))


async def planned(
    rewriter: Rewriter,
    place: SegmentPlace,
    manifest: ShardManifest,
    rules: UpkeepRules,
    now_ms: int,
    *,
    part_bytes: int | None = None,
) -> WholeRewrite | None:
    """What can be done with the topic in `manifest`, whose list was read, in parts of `part_bytes` raw bytes (None: as
    many as a segment holds, about). For compaction it reads the keys; then it raises `Corrupt`, `NotFound`,
    `Unavailable`."""
    topic = manifest.topics[place.topic_id]
    part_bytes = part_bytes or RAW_BYTES_FACTOR * rules.segment_bytes
    pass_ = plan_compaction(topic, replace(rules, min_cleanable_dirty_ratio=0.0), now_ms) if rules.compacts else None
    if pass_ is None:
        merges = tuple(_merges(topic, rules, rewriter.input_bytes_max, part_bytes))
        return WholeRewrite(place, rules, ChangeKind.MERGE, merges, {}, now_ms) if merges else None
    going = await rows_that_go(rewriter, pass_, spread_hash)
    steps = plan_steps(pass_, going, rules.segment_bytes, rewriter.input_bytes_max)
    inputs = (tuple(segment for run in step.runs for segment in run) for step in steps if step.runs)
    found = tuple(Stretch(some, tuple(split(some, going, part_bytes))) for some in inputs)
    return WholeRewrite(place, rules, ChangeKind.COMPACT, found, pass_.clean_ends, now_ms)


def _merges(topic: TopicState, rules: UpkeepRules, input_bytes_max: int, part_bytes: int) -> Iterator[Stretch]:
    policy = MergePolicy(rules, input_bytes_max)
    for runs in mergeable(topic, rules):
        left = runs
        while len(left) > 1:
            some = policy.with_room(left)
            inputs = tuple(segments_of_runs(topic.segments, some[0].number, some[-1].number))
            yield Stretch(inputs, tuple(split(inputs, dead_rows(topic, inputs), part_bytes)))
            left = left[len(some) :]
