import pyarrow as pa

from tidelog.services.broker.shard.hot_tail import ENTRY_OVERHEAD_BYTES, EntryName, HotTail

TABLE = pa.table({"n": [1]})
COST = 1_000 + ENTRY_OVERHEAD_BYTES


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
