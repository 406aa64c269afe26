"""The archive as it really is: every version of the manifest, every segment and list, and the rules for them.

Segments are read by pyarrow, not by the product. After each version, the rows of its segments must be the log, record
by record, from each partition's log start to its cold end. So every change is checked, by whatever worker it was made.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from tests.simulation.batches import PARTITIONS, TOPICS, Batch, topic_id_of
from tests.simulation.violation import SHARD, Rules

from tidelog.storage.layout import manifests_prefix, number_of, segment_topic_id, shard_history_prefix, topic_id_of_list
from tidelog.storage.manifests.shard_history import BLOCK
from tidelog.storage.manifests.shard_manifest import ShardManifest, decode_version, step_of
from tidelog.storage.manifests.shard_values import EMPTY, ChangeKind, ColdState, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState, decode_list
from tidelog.storage.upkeep.rules import UNLIMITED
from tidelog.storage.wal.floor import Floor


@dataclass(frozen=True)
class LoggedRecord:
    """A record of the log, by its batch and the epoch of its entry."""

    batch: Batch
    epoch: int


@dataclass(frozen=True)
class _Row:
    partition: int
    offset: int
    value: bytes


class ArchiveTruth:
    """`partitions`: the records of the log, which the caller extends. `retention_bytes`: the topics' setting."""

    def __init__(
        self,
        rules: Rules,
        partitions: Mapping[int, Sequence[LoggedRecord]],
        seen: Counter[str],
        grace_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.newest = ShardManifest(SHARD)
        self.retention_bytes = UNLIMITED
        self._rules = rules
        self._log = partitions
        self._seen = seen
        self._grace_ms = grace_ms
        self._now_ms = now_ms
        self._versions: list[ShardManifest] = []
        self._appended_ms: list[int] = []
        self._stored_heads: dict[int, str] = {}
        self._rows: dict[str, Sequence[_Row]] = {}
        self._lists: dict[str, bytes] = {}
        self._left_ms: dict[str, int] = {}
        self._history_end = 0
        self._asked: dict[int, int] = {}

    def cold_end(self, partition: int) -> int:
        return self._state(partition).cold_end

    def log_start(self, partition: int) -> int:
        return self._state(partition).log_start_offset

    def deletion_asked(self, partition: int, before_offset: int) -> None:
        """Somebody asks to delete the records of `partition` below an offset."""
        self._asked[partition] = max(before_offset, self._asked.get(partition, 0))

    # ---- effects on the bucket

    def version_created(self, number: int, key: str, data: bytes) -> Floor | None:
        """A version was created. Returns its floor; None if the number was used before, so that it is no version."""
        made = decode_version(key, data)
        self._stored_heads[number] = made.head
        if number < len(self._versions):
            self._seen["version made anew"] += 1
            return None
        self._require(number == len(self._versions), "inv. 5", f"version {number} follows {len(self._versions) - 1}")
        self._require(made.previous_head == self.newest.head, "inv. 5", f"version {number} follows another one")
        before, self.newest = self.newest, self._with_lists(made, self._lists)
        self._versions.append(made)
        self._appended_ms.append(self._now_ms())
        self._check_objects(before)
        for partition in range(PARTITIONS):
            self._check_partition(before, partition)
        if made.recorded:
            self._seen[made.recorded.kind.value] += 1
        return made.floor

    def check_put(self, key: str, data: bytes) -> None:
        """A put is about to take effect. It may repeat an upload; it may not change an object."""
        number = number_of(key, manifests_prefix(SHARD), ".json")
        changed = number in self._stored_heads or key in self._lists
        if key in self._rows:
            changed = self._rows[key] != _rows_of(data)
        self._require(not changed, "inv. 2", f"{key} was overwritten")

    def object_written(self, key: str, data: bytes) -> None:
        """A segment, list or history block was written."""
        if segment_topic_id(key):
            self._require(key not in self._left_ms, "inv. 2", f"{key} was used before")
            self._rows[key] = _rows_of(data)
        elif topic_id_of_list(key):
            self._lists[key] = data
        elif key.startswith(shard_history_prefix(SHARD)):
            self._block_written(key, data)
        else:
            self._require(False, "layout", f"{key} is no object of a shard")

    def deleted(self, key: str) -> None:
        """A delete took effect."""
        if (number := number_of(key, manifests_prefix(SHARD), ".json")) is not None:
            self._version_deleted(number)
        elif self._rows.pop(key, None) is not None or self._lists.pop(key, None) is not None:
            listed = key in _keys(self.newest)
            self._require(not listed, "inv. 5", f"{key} was deleted and is listed")
            self._require(key in self._left_ms, "inv. 6", f"{key} was deleted and no version has named it")
            waited_ms = self._now_ms() - self._left_ms[key]
            self._require(waited_ms >= self._grace_ms, "grace", f"{key} was deleted {waited_ms} ms after it left")
            self._seen["garbage deleted"] += 1

    # ---- what was told to somebody

    def appended(self, made: ShardManifest) -> None:
        """A worker believes that `made` is in the log of versions."""
        in_log = made.version < len(self._versions) and self._versions[made.version].head == made.head
        self._require(in_log, "inv. 5", f"version {made.version} was taken for appended and is not in the log")

    # ---- once more, from nothing

    def verify_bucket(self, objects: Mapping[str, bytes]) -> tuple[int, dict[int, int]]:
        """The floor of the newest version that `objects` have, and the cold ends, after its records were compared with
        the log."""
        numbers = {number_of(key, manifests_prefix(SHARD), ".json"): key for key in objects}
        numbers.pop(None, None)
        ends: defaultdict[int, int] = defaultdict(int)
        if not numbers:
            return 0, ends
        key = max(numbers.values())
        manifest = self._with_lists(decode_version(key, objects[key]), objects)
        missing = _keys(manifest) - objects.keys()
        self._require(not missing, "inv. 5", f"the newest version names {missing}, which do not exist")
        rows = {name: _rows_of(objects[name]) for name in _keys(manifest) if segment_topic_id(name)}
        for partition in range(PARTITIONS):
            self._check_rows(manifest, partition, rows)
            ends[partition] = _state_in(manifest, partition).cold_end
        return manifest.floor.number, ends

    # ---- rules

    def _check_objects(self, before: ShardManifest) -> None:
        """What a version names exists, and what it does not name any more is garbage until it is deleted."""
        names, garbage = _keys(self.newest), {each.key for each in self.newest.garbage}
        missing = names - self._rows.keys() - self._lists.keys()
        self._require(not missing, "inv. 5", f"version {self.newest.version} names {missing}, which do not exist")
        self._require(not names & garbage, "inv. 5", f"version {self.newest.version} lists garbage")
        for key in _keys(before) - names:
            self._left_ms[key] = self._now_ms()
        forgotten = (_keys(before) | {each.key for each in before.garbage}) - names - garbage
        kept = forgotten & (self._rows.keys() | self._lists.keys())
        self._require(not kept, "garbage", f"{kept} exist and version {self.newest.version} has forgotten them")

    def _check_partition(self, before: ShardManifest, partition: int) -> None:
        was, state = _state_in(before, partition), self._state(partition)
        kind = self.newest.recorded.kind if self.newest.recorded else None
        what = f"version {self.newest.version} of partition {partition}"
        self._require(state.cold_end >= was.cold_end, "inv. 5", f"{what} ends earlier")
        self._require(state.log_start_offset >= was.log_start_offset, "inv. 5", f"{what} begins earlier")
        if state.cold_end > was.cold_end:
            self._require(kind is ChangeKind.ARCHIVE, "inv. 5", f"{what} ends later by {kind}")
        if state.log_start_offset > was.log_start_offset:
            self._check_log_start(before, partition, kind)
        self._check_rows(self.newest, partition, self._rows)
        self._check_producers(partition, state)

    def _check_log_start(self, before: ShardManifest, partition: int, kind: ChangeKind | None) -> None:
        start = self._state(partition).log_start_offset
        if kind is ChangeKind.DELETE_RECORDS:
            asked = self._asked.get(partition, 0)
            self._require(start <= asked, "deletion", f"{partition} begins at {start}, and {asked} was asked for")
            return
        self._require(kind is ChangeKind.EXPIRE, "retention", f"{kind} moved the log start of {partition}")
        kept = sum(_bytes_from(segment, partition, start) for segment in _segments(before, partition))
        enough = self.retention_bytes != UNLIMITED and kept >= self.retention_bytes - len(self._rows)
        self._require(enough, "retention", f"only {kept:.0f} bytes of {partition} were kept")

    def _check_rows(self, manifest: ShardManifest, partition: int, rows: Mapping[str, Sequence[_Row]]) -> None:
        """The rows from the log start to the cold end are the log, in the order of runs."""
        state, log = _state_in(manifest, partition), self._log.get(partition, ())
        what = f"version {manifest.version} of partition {partition}"
        self._require(state.cold_end <= len(log), "inv. 5", f"{what} ends at {state.cold_end}, the log at {len(log)}")
        held: list[_Row] = []
        for segment in _segments(manifest, partition):
            own = [row for row in rows[segment.key] if row.partition == partition]
            stated = [span for span in segment.spans if span.partition == partition]
            found = [(own[0].offset, own[-1].offset, len(own))] if own else []
            said = [(span.base_offset, span.last_offset, span.records) for span in stated]
            self._require(found == said, "inv. 5", f"{segment.key} has {found}, its spans say {said}")
            held += own
        offsets = [row.offset for row in held if row.offset >= state.log_start_offset]
        dense = list(range(state.log_start_offset, state.cold_end))
        self._require(offsets == dense, "inv. 5", f"{what} has the records {offsets}, not {dense}")
        wrong = [row for row in held if row.value != log[row.offset].batch.value]
        self._require(not wrong, "inv. 5", f"{what} has {wrong[:1]}, the log has another record there")

    def _check_producers(self, partition: int, state: ColdState) -> None:
        """The last batch of each producer, and the epochs of the records, as a leader that begins here needs them."""
        log = self._log.get(partition, ())
        last = {record.batch.producer: record.batch for record in log[: state.cold_end]}
        said = {each.producer_id: each.first_sequence for each in state.producers}
        expected = {name: batch.sequence for name, batch in last.items()}
        self._require(said == expected, "inv. 7", f"{partition} has the producers {said}, not {expected}")
        for offset in range(state.log_start_offset, state.cold_end):
            begun = [each.epoch for each in state.epochs if each.first_offset <= offset]
            epoch = log[offset].epoch
            self._require(begun[-1:] == [epoch], "inv. 3", f"{offset} of {partition} is of epoch {epoch}, not {begun}")

    def _block_written(self, key: str, data: bytes) -> None:
        block = BLOCK.decode(key, data)
        first, last = block.versions
        steps = tuple(step_of(each) for each in self._versions[first : last + 1])
        self._require(block.steps == steps, "attest", f"{key} does not have the steps of its versions")
        self._require(first == self._history_end, "attest", f"the history lacks the versions before {first}")
        self._history_end = last + 1

    def _version_deleted(self, number: int) -> None:
        head = self._stored_heads.pop(number, None)
        if head is None or head != self._versions[number].head:
            return
        newest = self.newest.version
        self._require(number <= newest - 2, "inv. 5", f"version {number} was deleted, {newest} is the newest")
        self._require(number < self._history_end, "attest", f"version {number} was deleted before its step was kept")
        waited_ms = self._now_ms() - self._appended_ms[number + 1]
        self._require(waited_ms >= self._grace_ms, "grace", f"version {number} was deleted after {waited_ms} ms")
        self._seen["version deleted"] += 1

    def _with_lists(self, manifest: ShardManifest, lists: Mapping[str, bytes]) -> ShardManifest:
        return replace(
            manifest, topics={name: self._listed(name, each, lists) for name, each in manifest.topics.items()}
        )

    def _listed(self, topic_id: str, topic: TopicState, lists: Mapping[str, bytes]) -> TopicState:
        if topic.stored is None:
            return topic
        found = lists.get(topic.stored.key)
        self._require(found is not None, "inv. 5", f"{topic.stored.key} is named and does not exist")
        return replace(topic, base=decode_list(topic.stored, TOPICS[topic_id], topic_id, SHARD, found or b""))

    def _state(self, partition: int) -> ColdState:
        return _state_in(self.newest, partition)

    def _require(self, holds: bool, rule: str, what: object) -> None:
        self._rules.require(holds, rule, what)


def _state_in(manifest: ShardManifest, partition: int) -> ColdState:
    topic = manifest.topics.get(topic_id_of(partition))
    return topic.partition(partition) if topic else EMPTY


def _segments(manifest: ShardManifest, partition: int) -> Iterator[TopicSegment]:
    topic = manifest.topics.get(topic_id_of(partition))
    return iter(topic.segments) if topic else iter(())


def _keys(manifest: ShardManifest) -> frozenset[str]:
    """The segments and lists that a version names."""
    lists = {topic.stored.key for topic in manifest.topics.values() if topic.stored}
    return frozenset(lists | {segment.key for topic in manifest.topics.values() for segment in topic.segments})


def _bytes_from(segment: TopicSegment, partition: int, start: int) -> float:
    """The stored bytes of a partition's span that is not before `start`."""
    spans = [span for span in segment.spans if span.partition == partition and span.base_offset >= start]
    return sum(segment.size_bytes * span.raw_bytes / segment.raw_bytes for span in spans)


def _rows_of(data: bytes) -> Sequence[_Row]:
    stored = pq.ParquetFile(pa.BufferReader(data))
    columns = stored.read(columns=["partition", "offset", "value"], use_threads=False)
    return [_Row(*row) for row in zip(*(column.to_pylist() for column in columns.columns), strict=True)]
