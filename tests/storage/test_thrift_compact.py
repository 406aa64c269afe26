"""Thrift's compact protocol: written values are read back, and damage is detected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.parquet.thrift_compact import (
    DEPTH_MAX,
    I32,
    I64,
    STRUCT,
    Damaged,
    Encoded,
    Listed,
    Places,
    Struct,
    StructReader,
    Written,
    write_struct,
    written_number,
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


def places_of(struct: Struct) -> Places:
    """Where its numbers are that are not in lists."""
    found: dict[int, Places | None] = {}
    for number, value in struct.fields.items():
        if isinstance(value, I32 | I64):
            found[number] = None
        elif isinstance(value, Struct):
            found[number] = places_of(value)
    return found


def numbers_of(struct: Struct, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], int]]:
    found = []
    for number, value in struct.fields.items():
        if isinstance(value, I32 | I64):
            found.append(((*path, number), value.number))
        elif isinstance(value, Struct):
            found += numbers_of(value, (*path, number))
    return found


@given(STRUCTS.map(ascending))
def test_written_numbers_are_found(struct: Struct) -> None:
    written = write_struct(struct)
    reader = StructReader(memoryview(written))
    found = list(reader.numbers(places_of(struct)))
    assert [(number.path, number.value) for number in found] == numbers_of(struct)
    assert all(written[number.start : number.end] == written_number(number.value) for number in found)
    assert reader.position == len(written)


@given(STRUCTS.map(ascending))
def test_numbers_that_nobody_asks_for_are_passed_over(struct: Struct) -> None:
    written = write_struct(Struct({1: Listed([struct, struct]), 2: I64(-7)}))
    reader = StructReader(memoryview(written))
    assert [(number.path, number.value) for number in reader.numbers({2: None, 3: None})] == [((2,), -7)]
    assert reader.position == len(written)


def test_numbers_are_found_in_each_struct_of_a_list() -> None:
    items = Listed([Struct({3: Struct({9: I64(at), 11: I64(-at)})}) for at in range(20)])
    reader = StructReader(memoryview(write_struct(Struct({1: items, 2: b"x"}))))
    found = [(number.path, number.value) for number in reader.numbers({1: {3: {9: None, 11: None}}})]
    assert found == [((1, 3, field), sign * at) for at in range(20) for field, sign in ((9, 1), (11, -1))]


def test_another_kind_where_a_number_belongs_is_damage() -> None:
    with pytest.raises(Damaged, match="where a number belongs"):
        list(StructReader(memoryview(write_struct(Struct({1: b"text"})))).numbers({1: None}))


def test_fields_of_every_kind_are_passed_over() -> None:
    long_step = b"\x05\x28\x02"  # a number in the long form: field 20, an i32 of 1
    booleans = b"\x11\x12"  # two fields: true, false
    double = b"\x17" + bytes(8)
    long_list = b"\x19\xf5\x0f" + b"\x02" * 15
    reader = StructReader(memoryview(booleans + double + long_list + long_step + b"\x00"))
    assert [(number.path, number.value) for number in reader.numbers({20: None})] == [((20,), 1)]


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
        reader.skip(STRUCT)
    except Damaged:
        return
    assert reader.position <= len(data)


def test_structs_within_structs_have_an_end() -> None:
    with pytest.raises(Damaged, match="without end"):
        StructReader(memoryview(b"\x1c" * (DEPTH_MAX + 2))).skip(STRUCT)


def test_a_number_has_an_end() -> None:
    with pytest.raises(Damaged, match="number without end"):
        StructReader(memoryview(b"\x15" + b"\xff" * 20)).skip(STRUCT)
