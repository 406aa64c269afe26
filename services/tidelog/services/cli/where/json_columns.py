"""Parses JSON values into Arrow columns: only the fields that an expression names, and all values of a batch at once.

The expression gives each field a type, by the constants that it is compared with. Arrow refuses a block of values if
one of them does not fit: it is no JSON, or a field has another type. The caller then looks at these values one by one.

Each value that is parsed here begins with ``{`` and ends with ``}``. The values are joined by newlines, which a JSON
text cannot contain. So no text reaches into the next value, and as many objects as values means one for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tidelog.services.cli.record_format import joined_lines
from tidelog.services.cli.where.expression import Comparison, Constant, Expression, Membership, constants_of, tests_of

Kind = Literal["text", "integer", "number", "boolean", "any"]
Path: TypeAlias = tuple[str, ...]
Column: TypeAlias = "pa.Array[Any]"

EXACT_MAX = 2**53
"""Below this, a comparison with a 64-bit float is exact for every integer."""
_INT64_MAX = 2**63 - 1
_TYPES: Mapping[Kind, pa.DataType] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_SLACK_BYTES = 64


@dataclass(frozen=True)
class JsonColumns:
    """The fields to parse. `schemas`: what to try in turn; empty if no schema can hold the fields."""

    paths: frozenset[Path]
    schemas: tuple[pa.Schema, ...]
    infer: bool

    @classmethod
    def of(cls, expression: Expression) -> JsonColumns:
        """The fields of the value that `expression` names."""
        kinds = _kinds(expression)
        paths = frozenset(kinds)
        if not paths or () in paths or "mixed" in kinds.values() or _is_nested(paths):
            return cls(paths, (), False)
        known = {path: cast(Kind, kind) for path, kind in kinds.items() if kind != "any"}
        schemas = [_schema(known)]
        if "integer" in known.values() and _is_exact(expression):
            schemas.append(_schema({path: "number" if kind == "integer" else kind for path, kind in known.items()}))
        return cls(paths, tuple(schemas), len(known) < len(kinds))

    def parsed(self, values: Column) -> Mapping[Path, Column | None] | None:
        """The column of each path (None: no value has such a field), or None if `values` do not fit."""
        if not len(values):
            return dict.fromkeys(self.paths)
        for schema in self.schemas:
            table = _parsed(values, schema, infer=self.infer)
            if table is not None:
                return {path: _at(table, path) for path in self.paths}
        return None


def _parsed(values: Column, schema: pa.Schema, *, infer: bool) -> pa.Table | None:
    data = pa.py_buffer(joined_lines(values))
    options = pj.ParseOptions(
        explicit_schema=schema,
        newlines_in_values=True,
        unexpected_field_behavior="infer" if infer else "ignore",
    )
    try:
        values.cast(pa.string())  # checks that it is UTF-8, which the parser does not
        block = pj.ReadOptions(use_threads=False, block_size=data.size + _SLACK_BYTES)
        table = pj.read_json(cast(Any, pa.BufferReader(data)), read_options=block, parse_options=options)
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(values) else None


def _at(table: pa.Table, path: Path) -> Column | None:
    if path[0] not in table.column_names:
        return None
    column = cast(Any, table.column(path[0])).combine_chunks()
    for name in path[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = cast(Any, pc).struct_field(column, name)
    return cast("Column", column)


def _kinds(expression: Expression) -> dict[Path, str]:
    """The type that each field of the value must have; ``mixed`` if constants of several types are compared with it."""
    kinds: dict[Path, str] = {}
    for test in tests_of(expression):
        if test.field.root == "value":
            path = test.field.path
            kinds[path] = _joined([kinds.get(path, "any"), *map(_kind, constants_of(test))])
    return kinds


def _kind(constant: Constant) -> str:
    if constant is None:
        return "any"
    if isinstance(constant, bool):
        return "boolean"
    if isinstance(constant, str):
        return "text"
    if isinstance(constant, float):
        return "number"
    return "integer" if abs(constant) <= _INT64_MAX else "mixed"


def _joined(kinds: Iterable[str]) -> str:
    found = set(kinds) - {"any"}
    if found == {"integer", "number"}:
        return "number"
    return "any" if not found else found.pop() if len(found) == 1 else "mixed"


def _is_exact(expression: Expression) -> bool:
    numbers = [
        constant
        for test in tests_of(expression)
        if isinstance(test, Comparison | Membership) and test.field.root == "value"
        for constant in constants_of(test)
        if isinstance(constant, int | float)
    ]
    return all(abs(number) < EXACT_MAX for number in numbers)


def _is_nested(paths: frozenset[Path]) -> bool:
    """Whether one path leads into another."""
    return any(path[:length] in paths for path in paths for length in range(1, len(path)))


def _schema(kinds: Mapping[Path, Kind]) -> pa.Schema:
    tree: dict[str, Any] = {}
    for path, kind in kinds.items():
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = _TYPES[kind]
    return pa.schema(_fields(tree))


def _fields(tree: Mapping[str, Any]) -> Sequence[pa.Field[Any]]:
    return [
        pa.field(name, pa.struct(_fields(branch)) if isinstance(branch, dict) else branch)
        for name, branch in tree.items()
    ]
