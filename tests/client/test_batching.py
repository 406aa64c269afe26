"""Records become columns, and columns shares, without losing or reordering a record."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.batching import Draft, Extras, columns_of, split
from tidelog.storage.errors import Invalid
from tidelog.storage.partitioner import partitions_of


def draft_of(*records: tuple[bytes | None, bytes | None]) -> Draft:
    draft = Draft()
    for key, value in records:
        draft.append(value)
        if key is not None:
            draft.put_rest(key, None, None, None)
    return draft


def test_a_draft_without_keys_has_only_values() -> None:
    table = draft_of((None, b"a"), (None, None)).table()
    assert table.to_pydict() == {"value": [b"a", None]}


def test_keys_stand_in_the_rows_of_their_records() -> None:
    table = draft_of((None, b"a"), (None, b"b"), (b"k", b"c"), (None, b"d"), (b"l", b"e"), (None, b"f")).table()
    assert table.column("key").to_pylist() == [None, None, b"k", None, b"l", None]


def test_columns_of_few_records_are_set_in_their_rows() -> None:
    draft = draft_of((b"k", b"a"), (None, b"b"))
    draft.extras[1] = Extras(timestamp=1_000, headers=[("h", b"1"), ("n", None)], partition=3)
    table = draft.table()
    assert table.column("key").to_pylist() == [b"k", None]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [None, 1_000]
    assert table.column("headers").to_pylist() == [None, [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]]
    assert table.column("partition").to_pylist() == [None, 3]


def test_a_value_that_is_not_bytes_is_refused() -> None:
    with pytest.raises(Invalid, match="bytes or None"):
        draft_of((None, 7)).table()  # type: ignore[arg-type]  # the mistake under test


def test_a_table_with_an_unknown_column_is_refused() -> None:
    with pytest.raises(Invalid, match="colour"):
        columns_of(pa.table({"value": [b"a"], "colour": ["red"]}))


def test_a_table_without_values_is_refused() -> None:
    with pytest.raises(Invalid, match="value"):
        columns_of(pa.table({"key": [b"a"]}))


def test_a_table_of_text_goes_out_as_its_utf8() -> None:
    table = columns_of(pa.table({"value": ["ä"], "partition": [1]}))
    assert table.column("value").to_pylist() == ["ä".encode()]
    assert table.column("partition").to_pylist() == [1]


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(Invalid, match="type"):
        columns_of(pa.table({"value": [[1]]}))


def test_a_batch_without_keys_stays_whole() -> None:
    table = draft_of((None, b"a"), (None, b"b")).table()
    (share,) = split(table, numbers=range(table.num_rows), partition_count=4, keyless_partition=2)
    assert (share.partition, share.records) == (2, table)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_partition_that_is_not_there_is_refused(wrong: int) -> None:
    draft = draft_of((None, b"a"))
    draft.extras[0] = Extras(None, None, wrong)
    table = draft.table()
    with pytest.raises(Invalid, match=f"no partition {wrong}"):
        list(split(table, numbers=range(3), partition_count=4, keyless_partition=0))


@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=6)), min_size=1, max_size=50),
    named=st.dictionaries(st.integers(0, 49), st.integers(0, 2)),
)
def test_each_record_goes_where_it_says_else_where_its_key_says(
    keys: list[bytes | None], named: dict[int, int]
) -> None:
    draft = draft_of(*((key, b"%d" % row) for row, key in enumerate(keys)))
    draft.extras = {row: Extras(None, None, partition) for row, partition in named.items() if row < len(keys)}
    by_key = partitions_of(pa.chunked_array([pa.array(keys, pa.binary())]), 3).tolist()
    expected: dict[int, list[bytes]] = {}
    for row, key in enumerate(keys):
        partition = named.get(row, by_key[row] if key is not None else 1)
        expected.setdefault(partition, []).append(b"%d" % row)

    table = draft.table()
    numbers = range(100, 100 + table.num_rows)
    shares = tuple(split(table, numbers=numbers, partition_count=3, keyless_partition=1))
    assert {share.partition: share.records.column("value").to_pylist() for share in shares} == expected
    for share in shares:
        values = share.records.column("value").to_pylist()
        assert [b"%d" % (number - 100) for number in share.numbers] == values, "each record keeps its number"
