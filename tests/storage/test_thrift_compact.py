"""Thrift's compact protocol: written values are read back, and damage is detected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.parquet.thrift_compact import (
    DEPTH_MAX,
    I32,
    I64,
    Damaged,
    Encoded,
    Listed,
    Struct,
    StructReader,
    Value,
    Written,
    write_struct,
)


def ascending(fields: dict[int, Written]) -> Struct:
    return Struct(dict(sorted(fields.items())))


NUMBERS = st.integers(-(2**63), 2**63 - 1)
LEAVES: st.SearchStrategy[Written] = st.one_of(
    st.builds(I32, st.integers(-(2**31), 2**31 - 1)), st.builds(I64, NUMBERS), st.binary(max_size=200)
)
LISTS = st.lists(st.builds(I64, NUMBERS), min_size=1, max_size=40).map(Listed)
STRUCTS = st.recursive(
    st.dictionaries(st.integers(1, 15), st.one_of(LEAVES, LISTS), max_size=5),
    lambda inner: st.dictionaries(st.integers(1, 15), st.one_of(LEAVES, inner.map(ascending)), max_size=4),
    max_leaves=10,
)


def plain(value: Written) -> Value:
    if isinstance(value, I32 | I64):
        return value.number
    if isinstance(value, Listed):
        return [plain(item) for item in value.values]
    if isinstance(value, Struct):
        return {number: plain(item) for number, item in value.fields.items()}
    return value


@given(STRUCTS.map(ascending))
def test_written_values_are_read_back(struct: Struct) -> None:
    written = write_struct(struct)
    reader = StructReader(memoryview(written))
    assert reader.struct() == plain(struct)
    assert reader.position == len(written)


def test_fields_of_every_kind_are_passed_over() -> None:
    long_step = b"\x05\x28\x02"  # a number in the long form: field 20, an i32 of 1
    booleans = b"\x11\x12"  # two fields: true, false
    double = b"\x17" + bytes(8)
    long_list = b"\x19\xf5\x0f" + b"\x02" * 15
    reader = StructReader(memoryview(booleans + double + long_list + long_step + b"\x00"))
    assert reader.struct() == {1: 1, 2: 0, 3: bytes(8), 4: [1] * 15, 20: 1}


@given(STRUCTS.map(ascending))
def test_a_value_that_was_passed_over_is_written_again(struct: Struct) -> None:
    reader = StructReader(memoryview(write_struct(struct)))
    fields: dict[int, Written] = {}
    for number, kind in reader.fields():
        start = reader.position
        reader.skip(kind)
        fields[number] = Encoded(reader.between(start), kind)
    assert write_struct(Struct(fields)) == write_struct(struct)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_struct_or_damaged(data: bytes) -> None:
    reader = StructReader(memoryview(data))
    try:
        reader.struct()
    except Damaged:
        return
    assert reader.position <= len(data)


def test_structs_within_structs_have_an_end() -> None:
    with pytest.raises(Damaged, match="without end"):
        StructReader(memoryview(b"\x1c" * (DEPTH_MAX + 2))).struct()


def test_a_number_has_an_end() -> None:
    with pytest.raises(Damaged, match="number without end"):
        StructReader(memoryview(b"\x15" + b"\xff" * 20)).struct()
