"""The parts of an expression, as values.

A comparison with a field that is missing, null, or of another type than the literal is false, also `!=`; `not` negates
it. `== null` is true for a field that is missing or null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Root = Literal["value", "key", "headers", "timestamp", "offset", "partition"]
ROOTS: tuple[Root, ...] = ("value", "key", "headers", "timestamp", "offset", "partition")
Operator = Literal["==", "!=", "<", "<=", ">", ">="]
Constant: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Field:
    """A field of a record. `path`: the names inside a JSON value, or the one name of a header."""

    root: Root
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """`field` compared with `constant`, which is null only for ``==`` and ``!=``."""

    field: Field
    operator: Operator
    constant: Constant


@dataclass(frozen=True)
class Membership:
    """`field` is one of `constants`."""

    field: Field
    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class Match:
    """The text of `field` contains a match of `pattern` (RE2)."""

    field: Field
    pattern: str


Test: TypeAlias = Comparison | Membership | Match


@dataclass(frozen=True)
class Not:
    part: Expression


@dataclass(frozen=True)
class All:
    """``and``"""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class AnyOf:
    """``or``"""

    parts: tuple[Expression, ...]


Expression: TypeAlias = "Test | Not | All | AnyOf"


def tests_of(expression: Expression) -> Iterator[Test]:
    """Every test in the expression."""
    if isinstance(expression, Not):
        yield from tests_of(expression.part)
    elif isinstance(expression, All | AnyOf):
        for part in expression.parts:
            yield from tests_of(part)
    else:
        yield expression


def constants_of(test: Test) -> tuple[Constant, ...]:
    """The constants that the field of `test` is compared with; a pattern counts as text."""
    if isinstance(test, Comparison):
        return (test.constant,)
    return test.constants if isinstance(test, Membership) else (test.pattern,)
