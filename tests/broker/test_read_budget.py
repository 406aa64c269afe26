"""A fetch returns whole records up to its bounds and at least one, however they are spread over batches."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.record_tables import record_table

from tidelog.services.broker.read.read_budget import ReadBudget

SIZES = st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=4)


def table_of(chunks: list[list[int]]) -> pa.Table:
    """A table with one batch per list and one record per number; the number is the size of its value in bytes."""
    sizes = [size for chunk in chunks for size in chunk]
    whole = record_table(range(len(sizes)), [(None, b"v" * size, None) for size in sizes])
    batches, first = [], 0
    for chunk in chunks:
        batches += whole.slice(first, len(chunk)).combine_chunks().to_batches()
        first += len(chunk)
    return pa.Table.from_batches(batches, whole.schema)


@settings(deadline=None)  # the first example loads Arrow's functions
@given(chunks=SIZES, records_max=st.integers(1, 12), bytes_max=st.integers(0, 40))
def test_a_fetch_returns_the_longest_prefix_that_fits(
    chunks: list[list[int]], records_max: int, bytes_max: int
) -> None:
    budget = ReadBudget(records_max, bytes_max)
    budget.take(table_of(chunks))
    sizes = [size for chunk in chunks for size in chunk]
    fitting = [count for count in range(1, records_max + 1) if count == 1 or sum(sizes[:count]) <= bytes_max]
    count = min(max(fitting), len(sizes))
    assert [offset for batch in budget.batches() for offset in batch["offset"].to_pylist()] == list(range(count))
    assert budget.payload_bytes == sum(sizes[:count])
    assert budget.next_offset == (count or None)
    if count < len(sizes):
        assert budget.spent
