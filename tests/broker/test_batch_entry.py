"""A batch becomes a sorted entry whose spans describe its rows, for any input."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.drafts import draft

from tidelog.coordinator.topics.topic import TopicConfig
from tidelog.services.broker.shard.append_buffer import Append
from tidelog.services.broker.shard.batch_entry import entry_draft
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.write.admission import admit
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.partition_view import view_of
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.records import WAL_SCHEMA
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import EntryKind, WalHeader


def append(state: PartitionState, number: int, count: int, held_bytes: int) -> Append:
    values = [b"%d-%d" % (number, row) for row in range(count)]
    admitted = admit(draft(values, timestamps=[number] * count).records, TopicConfig(), key_bytes_max=10, now_ms=0)
    return Append(state, admitted.records, state.assign(count), held_bytes, 1, number)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=30),
    st.sampled_from([100, 1 << 20]),
)
def test_each_append_is_found_again_at_its_offsets(appends: list[tuple[str, int, int]], held_bytes: int) -> None:
    states: dict[TopicPartition, PartitionState] = {}
    taken = []
    for number, (topic, partition, count) in enumerate(appends):
        place = TopicPartition(topic, partition)
        state = states.setdefault(place, PartitionState(topic, view_of(ShardManifest(0), place)))
        taken.append(append(state, number, count, held_bytes))
    entry = entry_draft(taken)
    assert entry.records.schema == WAL_SCHEMA
    spans = {drafted.span.topic_partition: drafted for drafted in entry.spans}
    assert [drafted.span.topic_partition for drafted in entry.spans] == sorted(states)
    for one in taken:
        drafted = spans[one.partition.topic_partition]
        first_row = drafted.span.first_row + one.base_offset - drafted.span.base_offset
        rows = entry.records.slice(first_row, one.count)
        assert rows.column("value").to_pylist() == one.records.column("value").to_pylist()
        assert rows.column("offset").to_pylist() == list(range(one.base_offset, one.base_offset + one.count))
        assert drafted.timestamp_ms_max >= one.timestamp_ms_max
    header = WalHeader(EntryKind.RECORDS, 0, 1, 1, "w", "e", 1, tuple(drafted.span for drafted in entry.spans))
    codec = ParquetWalCodec()
    assert codec.decode("k", bytes(codec.encode(header, entry.records))).header == header
