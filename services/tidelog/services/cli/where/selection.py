"""Selects the records of a batch that match an expression.

The fast way evaluates the whole batch on Arrow columns. If Arrow refuses the values of a batch, it is cut into blocks
of `BLOCK_ROWS`. Only the values of blocks that are refused again are decoded one by one, with the same result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.services.cli.where.expression import (
    All,
    AnyOf,
    Comparison,
    Constant,
    Expression,
    Field,
    Match,
    Membership,
    Not,
    Test,
    constants_of,
)
from tidelog.services.cli.where.json_columns import Column, JsonColumns

BLOCK_ROWS = 1_024

Mask: TypeAlias = npt.NDArray[np.bool_]

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_COMPARE_NUMBERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MISSING = object()


class Tests(Protocol):
    """Decides single tests for the rows of a block."""

    def mask(self, test: Test) -> Mask: ...


class Selection:
    """Selects by `expression`. `not_json` counts the records whose value is no JSON; they never match. Expressions that
    do not name the value do not look at it."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self.not_json = 0
        self._columns = JsonColumns.of(expression)

    def matching(self, records: pa.Table, partition: int) -> pa.Table:
        """The matching rows of `records`, which have `RECORD_SCHEMA`."""
        if not records.num_rows:
            return records
        table = records.combine_chunks()
        mask = self._mask(table, partition) if self._columns.paths else self._evaluated(table, partition, {})
        return table.filter(pa.array(mask))

    def _mask(self, table: pa.Table, partition: int) -> Mask:
        objects = _are_objects(_column(table, "value"))
        mask = np.zeros(table.num_rows, bool)
        if not self._columns.schemas:
            return self._one_by_one(table, partition)
        mask[objects] = self._of_objects(table if objects.all() else table.filter(pa.array(objects)), partition)
        if not objects.all():
            mask[~objects] = self._one_by_one(table.filter(pa.array(~objects)), partition)
        return mask

    def _of_objects(self, table: pa.Table, partition: int) -> Mask:
        columns = self._columns.parsed(_column(table, "value"))
        if columns is not None:
            return self._evaluated(table, partition, columns)
        if table.num_rows <= BLOCK_ROWS:
            return self._one_by_one(table, partition)
        starts = range(0, table.num_rows, BLOCK_ROWS)
        return np.concatenate([self._of_objects(_block(table, start), partition) for start in starts])

    def _evaluated(self, table: pa.Table, partition: int, columns: Mapping[tuple[str, ...], Column | None]) -> Mask:
        return evaluated(self.expression, ColumnTests(table, partition, columns))

    def _one_by_one(self, table: pa.Table, partition: int) -> Mask:
        decoded = [_decoded(value) for value in _column(table, "value").to_pylist()]
        is_json = np.fromiter((value is not _MISSING for value in decoded), bool, len(decoded))
        self.not_json += len(decoded) - int(np.count_nonzero(is_json))
        return cast(Mask, evaluated(self.expression, DecodedTests(table, partition, decoded)) & is_json)


def evaluated(expression: Expression, tests: Tests) -> Mask:
    """The rows for which `expression` is true."""
    if isinstance(expression, Not):
        return ~evaluated(expression.part, tests)
    if isinstance(expression, All | AnyOf):
        join = np.logical_and if isinstance(expression, All) else np.logical_or
        mask = evaluated(expression.parts[0], tests)
        for part in expression.parts[1:]:
            mask = cast(Mask, join(mask, evaluated(part, tests)))
        return mask
    return tests.mask(expression)


class ColumnTests:
    """Tests on Arrow columns. `parsed`: those of the fields of the value."""

    def __init__(
        self, table: pa.Table, partition: int, parsed: Mapping[tuple[str, ...], Column | None] | None = None
    ) -> None:
        self._table = table
        self._partition = partition
        self._parsed = parsed or {}

    def mask(self, test: Test) -> Mask:
        column = self._column(test.field)
        if column is None:  # no record has the field
            column = pa.nulls(self._table.num_rows)
        return column_mask(test, column)

    def _column(self, field: Field) -> Column | None:
        if field.root == "value":
            return self._parsed[field.path]
        if field.root == "headers":
            return _last_header(_column(self._table, "headers"), field.path[0])
        if field.root == "partition":
            return cast("Column", pa.repeat(pa.scalar(self._partition, pa.int64()), self._table.num_rows))
        column = _column(self._table, field.root)
        return column.cast(pa.int64()) if field.root == "timestamp" else column


class DecodedTests:
    """Tests on decoded values; those on other fields are made on columns."""

    def __init__(self, table: pa.Table, partition: int, decoded: Sequence[object]) -> None:
        self._others = ColumnTests(table, partition)
        self._decoded = decoded

    def mask(self, test: Test) -> Mask:
        if test.field.root != "value":
            return self._others.mask(test)
        found = [_at(value, test.field.path) for value in self._decoded]
        constants = constants_of(test)
        mask = np.zeros(len(found), bool)
        if isinstance(test, Comparison) and test.constant is None:
            absent = [value is None or value is _MISSING for value in found]
            return np.array(absent if test.operator == "==" else [not one for one in absent], bool)
        if strings := tuple(constant for constant in constants if isinstance(constant, str)):
            texts = pa.array([value if isinstance(value, str) else None for value in found], pa.string())
            mask |= column_mask(replace(test, constants=strings) if isinstance(test, Membership) else test, texts)
        if any(not isinstance(constant, str) for constant in constants):
            mask |= np.array([_is_hit(test, value) for value in found], bool)
        return mask


def column_mask(test: Test, column: Column) -> Mask:
    """The rows of `column` for which `test` is true. Constants of another type than the column never match."""
    if isinstance(test, Comparison) and test.constant is None:
        found: Any = column.is_null() if test.operator == "==" else column.is_valid()
    elif pa.types.is_null(column.type):
        found = _none(len(column)) if None not in constants_of(test) else column.is_null()
    elif isinstance(test, Match):
        found = pc.match_substring_regex(column, test.pattern)
    elif isinstance(test, Comparison):
        found = _COMPARE[test.operator](column, _scalar(test.constant, column.type))
    else:
        fitting = [constant for constant in test.constants if _fits(constant, column.type)]
        wanted = [_plain(one, column.type) for one in fitting]
        found = pc.is_in(column, value_set=pa.array(wanted, column.type)) if wanted else _none(len(column))
        if None in test.constants:
            found = pc.or_(found, column.is_null())
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), bool)


def _none(length: int) -> Column:
    return cast("Column", pa.repeat(pa.scalar(False), length))


def _fits(constant: Constant, kind: pa.DataType) -> bool:
    if isinstance(constant, bool):
        return pa.types.is_boolean(kind)
    if isinstance(constant, str):
        return pa.types.is_string(kind) or pa.types.is_binary(kind)
    if constant is None or (pa.types.is_floating(kind) and float(constant) != constant):
        return False  # a whole number that no float equals
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _plain(constant: Constant, kind: pa.DataType) -> object:
    return constant.encode() if isinstance(constant, str) and pa.types.is_binary(kind) else constant


def _scalar(constant: Constant, kind: pa.DataType) -> Any:
    return cast(Any, pa).scalar(_plain(constant, kind), None if isinstance(constant, float) else kind)


def _is_hit(test: Test, value: object) -> bool:
    """Whether a decoded `value` passes a test with a number, a boolean or null."""
    if isinstance(test, Comparison):
        return _same_type(test.constant, value) and _COMPARE_NUMBERS[test.operator](value, test.constant)
    return any(
        (value is None or value is _MISSING) if constant is None else _same_type(constant, value) and value == constant
        for constant in constants_of(test)
        if not isinstance(constant, str)
    )


def _same_type(constant: Constant, value: object) -> bool:
    if isinstance(constant, bool) or isinstance(value, bool):
        return isinstance(constant, bool) and isinstance(value, bool)
    return isinstance(constant, int | float) and isinstance(value, int | float)


def _are_objects(values: Column) -> Mask:
    """Which values begin and end like a JSON object."""
    found: Any = pc.and_(pc.starts_with(values, pattern="{"), pc.ends_with(values, pattern="}"))
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), bool)


def _decoded(value: bytes | None) -> object:
    """A decoded value; null for a tombstone, `_MISSING` if it is no JSON."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _MISSING


def _at(value: object, path: tuple[str, ...]) -> object:
    for name in path:
        value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
    return value


def _column(table: pa.Table, name: str) -> Column:
    column: Any = table.column(name).combine_chunks()
    return cast("Column", column)


def _block(table: pa.Table, start: int) -> pa.Table:
    return table.slice(start, BLOCK_ROWS).combine_chunks()


def _last_header(headers: Column, name: str) -> Column:
    """The value of the last header `name` of each record; null if it has none."""
    owners = np.asarray(cast(Any, pc).list_parent_indices(headers).to_numpy())
    flat: Any = cast(Any, headers).flatten()
    same_name: Any = pc.equal(flat.field("key"), pa.scalar(name))
    named: Mask = np.asarray(same_name.to_numpy(zero_copy_only=False), bool)
    places = np.full(len(headers), -1, np.int64)
    places[owners[named]] = np.flatnonzero(named)  # of several, numpy keeps the last
    return cast("Column", flat.field("value").take(pa.array(places, mask=places < 0)))
