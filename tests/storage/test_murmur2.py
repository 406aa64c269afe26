"""The partitioner agrees with Kafka's, and with itself for any memory layout of the keys."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.partitioner import NO_PARTITION, murmur2, partitions_of

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), KAFKA_VECTORS.items())
def test_a_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(pa.array([key], pa.binary())).astype(np.int32).tolist() == [expected]


def test_many_keys_of_different_lengths_hash_as_each_alone() -> None:
    keys = [*KAFKA_VECTORS, *(b"x" * n for n in range(70))]
    together = murmur2(pa.array(keys, pa.binary())).tolist()
    assert together == [murmur2(pa.array([key], pa.binary()))[0] for key in keys]
    assert together[: len(KAFKA_VECTORS)] == [value % 2**32 for value in KAFKA_VECTORS.values()]


def test_a_null_key_has_no_partition() -> None:
    keys = pa.chunked_array([pa.array([b"21", None], pa.binary()), pa.array([b"foobar"], pa.binary())])
    positive = [-973932308 & 0x7FFFFFFF, -790332482 & 0x7FFFFFFF]
    assert partitions_of(keys, 7).tolist() == [positive[0] % 7, NO_PARTITION, positive[1] % 7]


def test_no_keys_have_no_partitions() -> None:
    assert partitions_of(pa.chunked_array([], pa.binary()), 3).tolist() == []
    assert partitions_of(pa.chunked_array([pa.array([], pa.binary())]), 3).tolist() == []


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1), st.data())
def test_a_slice_of_an_array_hashes_as_its_copy(keys: list[bytes | None], data: st.DataObject) -> None:
    array = pa.array(keys, pa.binary())
    start = data.draw(st.integers(0, len(keys) - 1))
    sliced, copied = array.slice(start), pa.array(keys[start:], pa.binary())
    assert (
        partitions_of(pa.chunked_array([sliced]), 5).tolist() == partitions_of(pa.chunked_array([copied]), 5).tolist()
    )
