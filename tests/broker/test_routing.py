import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.drafts import draft

from tidelog.coordinator.topics.topic import TopicConfig
from tidelog.services.broker.api.produce import Draft
from tidelog.services.broker.write.admission import admit
from tidelog.services.broker.write.routing import Share, check_all_name, route
from tidelog.storage.errors import Invalid
from tidelog.storage.partitioner import partitions_of


def routed(one: Draft, partition_count: int, keyless_partition: int = 0) -> list[Share]:
    admitted = admit(one.records, TopicConfig(), key_bytes_max=1 << 20, now_ms=5)
    return list(
        route(
            admitted,
            one.partitions,
            held_bytes=one.body_bytes,
            partition_count=partition_count,
            keyless_partition=keyless_partition,
        )
    )


def values(share: Share) -> list[bytes]:
    return share.records.column("value").to_pylist()


def test_records_without_a_key_go_to_one_partition() -> None:
    (share,) = routed(draft([b"a", b"b"]), 8, keyless_partition=5)
    assert (share.partition, values(share)) == (5, [b"a", b"b"])


def test_a_table_for_one_partition_is_not_copied() -> None:
    one = draft([b"a" * 100, b"b" * 100], keys=[b"k", b"k"])
    (share,) = routed(one, 8)
    assert share.records.column("value").chunk(0).buffers()[2].address == (
        one.records.column("value").chunk(0).buffers()[2].address
    )
    assert share.held_bytes == one.body_bytes


def test_a_named_partition_is_stronger_than_the_key() -> None:
    shares = routed(draft([b"a", b"b", b"c"], keys=[b"k", b"k", None], partitions=[3, None, None]), 4, 1)
    home = int(partitions_of(pa.chunked_array([pa.array([b"k"], pa.binary())]), 4)[0])
    where = {value: share.partition for share in shares for value in values(share)}
    assert where == {b"a": 3, b"b": home, b"c": 1}


@pytest.mark.parametrize("partition", [-1, 4, 2**31 - 1])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    with pytest.raises(Invalid, match="no partition") as raised:
        routed(draft([b"a", b"b"], partitions=[0, partition]), 4)
    assert raised.value.record == 1


def test_a_request_for_one_partition_may_name_no_other() -> None:
    check_all_name(draft([b"a", b"b"], partitions=[2, None]).partitions, 2)
    with pytest.raises(Invalid, match="another partition") as raised:
        check_all_name(draft([b"a", b"b"], partitions=[2, 3]).partitions, 2)
    assert raised.value.record == 1


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=9), st.none() | st.integers(0, 4)), min_size=1
    ),
    st.integers(5, 9),
)
def test_shares_hold_every_record_once_in_order_with_its_sums(
    rows: list[tuple[bytes, bytes | None, int | None]], partition_count: int
) -> None:
    one = draft([row[0] for row in rows], keys=[row[1] for row in rows], partitions=[row[2] for row in rows])
    shares = routed(one, partition_count)
    keys = pa.chunked_array([pa.array([row[1] for row in rows], pa.binary())])
    by_key = [number if number >= 0 else 0 for number in partitions_of(keys, partition_count).tolist()]
    wanted: dict[int, list[bytes]] = {}
    for (value, _, named), keyed in zip(rows, by_key, strict=True):
        wanted.setdefault(keyed if named is None else named, []).append(value)
    assert {share.partition: values(share) for share in shares} == wanted
    assert [share.partition for share in shares] == sorted(wanted)
    assert sum(share.payload_bytes for share in shares) == sum(len(row[0]) + len(row[1] or b"") for row in rows)
