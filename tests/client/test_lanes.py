"""One request in flight per partition, sequences without a gap, and an exact count of bytes."""

import pyarrow as pa

from tidelog.client.lanes import Lanes, Share


def share(partition: int, *values: bytes) -> Share:
    table = pa.table({"value": pa.array(values, pa.binary())})
    return Share(partition, table, sum(map(len, values)), range(len(values)))


def lanes(request_bytes: int = 1_000, request_records: int = 1_000) -> Lanes:
    return Lanes(request_bytes=request_bytes, request_records=request_records)


def test_a_lane_under_way_gives_nothing_until_it_is_done() -> None:
    queue = lanes()
    queue.put(share(0, b"a"))
    first = queue.take()
    queue.put(share(0, b"b"))
    assert first is not None
    assert queue.take() is None
    queue.done(first)
    second = queue.take()
    assert second is not None
    assert (first.first_sequence, second.first_sequence) == (0, 1)


def test_lanes_go_side_by_side_and_in_turn() -> None:
    queue = lanes()
    for partition in (2, 0, 1):
        queue.put(share(partition, b"a"))
    taken = [queue.take() for _ in range(3)]
    assert [parcel.partition for parcel in taken if parcel] == [2, 0, 1]
    assert queue.take() is None


def test_waiting_shares_go_out_together_up_to_the_bound_of_bytes() -> None:
    queue = lanes(request_bytes=3)
    for value in (b"a", b"bb", b"c"):
        queue.put(share(0, value))
    parcel = queue.take()
    assert parcel is not None
    assert parcel.records.column("value").to_pylist() == [b"a", b"bb"]


def test_waiting_shares_go_out_together_up_to_the_bound_of_records() -> None:
    queue = lanes(request_records=2)
    for value in (b"a", b"b", b"c"):
        queue.put(share(0, value))
    parcel = queue.take()
    assert parcel is not None
    assert parcel.records.num_rows == 2


def test_a_share_over_the_bound_goes_out_alone() -> None:
    queue = lanes(request_bytes=1)
    queue.put(share(0, b"large"))
    parcel = queue.take()
    assert parcel is not None
    assert parcel.bytes == 5


def test_shares_with_different_columns_go_out_together() -> None:
    queue = lanes()
    queue.put(share(0, b"a"))
    queue.put(
        Share(0, pa.table({"key": pa.array([b"k"], pa.binary()), "value": pa.array([b"b"], pa.binary())}), 2, range(1))
    )
    parcel = queue.take()
    assert parcel is not None
    assert parcel.records.column("key").to_pylist() == [None, b"k"]


def test_it_is_empty_once_all_is_done() -> None:
    queue = lanes()
    assert queue.empty
    queue.put(share(0, b"a"))
    parcel = queue.take()
    assert parcel is not None
    assert not queue.empty
    queue.done(parcel)
    assert queue.empty
    assert queue.bytes == 0


def test_dropping_discards_waiting_batches_but_not_the_one_in_flight() -> None:
    queue = lanes()
    queue.put(share(0, b"a"))
    parcel = queue.take()
    assert parcel is not None
    queue.put(share(0, b"b"))
    queue.put(share(1, b"c", b"d"))
    assert queue.drop_waiting() == 3
    assert queue.bytes == parcel.bytes
    queue.done(parcel)
    assert queue.empty
    assert queue.take() is None
