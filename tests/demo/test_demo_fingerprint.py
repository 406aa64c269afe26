"""A fingerprint depends on the records and their order, and on nothing else."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from demo.agreement import Fingerprint

RECORDS = [(b"k1", b"one"), (None, b"two"), (b"k3", b""), (b"k4", b"four")]


def printed(*batches: Sequence[tuple[bytes | None, bytes]]) -> Fingerprint:
    fingerprint = Fingerprint()
    for batch in batches:
        keys, values = zip(*batch, strict=True)
        fingerprint.update(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    return fingerprint


def test_the_cut_into_batches_does_not_matter() -> None:
    assert printed(RECORDS).hexdigest() == printed(RECORDS[:1], RECORDS[1:3], RECORDS[3:]).hexdigest()


def test_a_slice_counts_for_its_own_records_alone() -> None:
    values = pa.array([b"zero", b"one", b"two", b"three"], pa.binary()).slice(1, 2)
    sliced = Fingerprint()
    sliced.update(pa.nulls(2, pa.binary()), values)
    assert sliced.hexdigest() == printed([(None, b"one"), (None, b"two")]).hexdigest()


@pytest.mark.parametrize(
    "changed",
    [
        RECORDS[:-1],
        [*RECORDS, RECORDS[-1]],
        [RECORDS[1], RECORDS[0], *RECORDS[2:]],
        [(b"k1", b"onE"), *RECORDS[1:]],
        [(b"k9", b"one"), *RECORDS[1:]],
        [(b"k1", b"onet"), (None, b"wo"), *RECORDS[2:]],
    ],
    ids=["lost", "repeated", "swapped", "altered", "another key", "another boundary"],
)
def test_any_other_records_give_another_one(changed: list[tuple[bytes | None, bytes]]) -> None:
    assert printed(changed).hexdigest() != printed(RECORDS).hexdigest()


def test_it_counts_records_and_bytes() -> None:
    fingerprint = printed(RECORDS)
    assert (fingerprint.records, fingerprint.value_bytes) == (4, 10)
