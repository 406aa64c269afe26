import pyarrow as pa

from tidelog.services.broker.api.fetch import SentBatch
from tidelog.services.broker.shard.hot_tail import ENTRY_OVERHEAD_BYTES, EntryName, HotTail
from tidelog.services.broker.shard.sent_entry import SentEntry
from tidelog.storage.layout import TopicPartition

TABLE = pa.table({"n": [1]})
COST = 1_000 + ENTRY_OVERHEAD_BYTES
PLACE = TopicPartition("topic-id", 0)


def names(tail: HotTail, count: int) -> list[int]:
    return [seq for seq in range(count) if tail.get(EntryName(0, seq)) is not None]


def test_the_oldest_go_once_the_bound_is_passed() -> None:
    tail = HotTail(3 * COST)
    for seq in range(5):
        tail.put(EntryName(0, seq), TABLE, 1_000)
    assert names(tail, 5) == [2, 3, 4]
    assert tail.held_bytes == 3 * COST


def test_records_that_are_read_stay_longer() -> None:
    tail = HotTail(2 * COST)
    tail.put(EntryName(0, 0), TABLE, 1_000)
    tail.put(EntryName(0, 1), TABLE, 1_000)
    tail.get(EntryName(0, 0))
    tail.put(EntryName(0, 2), TABLE, 1_000)
    assert names(tail, 3) == [0, 2]


def test_an_entry_over_the_bound_is_not_kept_and_drops_nothing() -> None:
    tail = HotTail(COST)
    tail.put(EntryName(0, 0), TABLE, 1_000)
    tail.put(EntryName(0, 1), TABLE, 1_001)
    assert names(tail, 2) == [0]


def test_an_entry_put_twice_counts_once() -> None:
    tail = HotTail(10 * COST)
    tail.put(EntryName(0, 0), TABLE, 1_000)
    tail.put(EntryName(0, 0), TABLE, 1_000)
    assert (len(tail), tail.held_bytes) == (1, COST)


def sent(size_bytes: int) -> SentEntry:
    return SentEntry({PLACE: ()}, size_bytes)


def test_the_form_that_nobody_reads_leaves_first() -> None:
    tail = HotTail(2 * COST)
    tail.put(EntryName(0, 0), TABLE, 1_000)
    tail.put_sent(EntryName(0, 0), sent(COST))
    assert tail.sent(EntryName(0, 0))
    tail.put_sent(EntryName(0, 1), sent(COST))
    assert (names(tail, 2), tail.sent(EntryName(0, 0)) is not None) == ([], True)


def test_batches_over_the_bound_are_not_kept() -> None:
    tail = HotTail(COST)
    tail.put_sent(EntryName(0, 0), sent(COST + 1))
    assert (tail.sent(EntryName(0, 0)), tail.held_bytes) == (None, 0)


def test_a_shard_is_dropped_in_both_forms() -> None:
    tail = HotTail(10 * COST)
    for shard in (0, 1):
        tail.put(EntryName(shard, 0), TABLE, 1_000)
        tail.put_sent(EntryName(shard, 0), sent(COST))
    tail.drop(0)
    assert (tail.get(EntryName(0, 0)), tail.sent(EntryName(0, 0)), tail.held_bytes) == (None, None, 2 * COST)


def test_batches_end_at_the_first_gap() -> None:
    batches = [SentBatch(0, 2, b"a"), SentBatch(2, 1, b"b"), SentBatch(5, 3, b"c")]
    entry = SentEntry({PLACE: batches}, 3)
    found = [[batch.base_offset for batch in entry.from_offset(PLACE, offset)] for offset in range(9)]
    assert found == [[0, 2], [0, 2], [2], [], [], [5], [5], [5], []]
    assert list(entry.from_offset(TopicPartition("other", 0), 0)) == []
