"""Finds the columns of a schema in a Parquet file: by field id, then by name.

So a later program, or another one, may add columns, rename them, or write them in another order. Columns that the
schema does not have are ignored. A field id is never given again, so it decides, and the name counts only for columns
without one (ADR 0030).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tidelog.storage.errors import Corrupt

_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as a file has it: its `field` there, and the number of its first leaf among Parquet's columns."""

    field: pa.Field[Any]
    leaf: int


def stored_columns(key: str, schema: pa.Schema, stored: pa.Schema) -> Mapping[str, StoredColumn]:
    """Where the file `key`, with the schema `stored`, has the columns of `schema`, by their names. Raises `Corrupt`,
    which names a column that is missing or has another type."""
    leaves = accumulate((leaves_of(field.type) for field in stored), initial=0)
    fields = [(field, leaf) for field, leaf in zip(stored, leaves, strict=False)]
    by_id = {_id_of(field): (field, leaf) for field, leaf in reversed(fields)}
    by_name = {field.name: (field, leaf) for field, leaf in reversed(fields)}
    columns = {}
    for wanted in schema:
        number, named = _id_of(wanted), by_name.get(wanted.name)
        if number and named and _id_of(named[0]):
            named = None  # another column that has the name now
        found = (by_id.get(number) if number else None) or named
        if found is None:
            raise Corrupt(key, f"lacks the column {wanted.name!r} (field id {(number or b'none').decode()})")
        if not found[0].type.equals(wanted.type):
            raise Corrupt(key, f"its column {wanted.name!r} is {found[0].type}, and not {wanted.type}")
        columns[wanted.name] = StoredColumn(found[0], found[1])
    return columns


def _id_of(field: pa.Field[Any]) -> bytes | None:
    return field.metadata.get(_ID) if field.metadata else None


def leaves_of(kind: pa.DataType) -> int:
    """How many columns of Parquet hold values of this type."""
    return sum(leaves_of(kind.field(at).type) for at in range(kind.num_fields)) or 1
