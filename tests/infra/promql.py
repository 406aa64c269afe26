"""The metrics and labels that a PromQL expression uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import promql_parser

GIVEN_BY_PROMETHEUS = frozenset({"job", "instance"})
PROMETHEUS_OWN: Mapping[str, frozenset[str]] = {"up": GIVEN_BY_PROMETHEUS}

Exported = Mapping[str, frozenset[str]]
"""The labels of each exported metric, by its name in the text format."""


@dataclass(frozen=True)
class Asked:
    """One metric in an expression, and the labels by which the expression selects, groups or joins it."""

    metric: str
    labels: frozenset[str]


def asked(expression: str) -> tuple[Asked, ...]:
    """Every metric of `expression`. Raises `ValueError` if it is not PromQL."""
    return tuple(_asked(promql_parser.parse(expression), frozenset()))


def _asked(expression: promql_parser.Expr, outer: frozenset[str]) -> Iterator[Asked]:
    match expression:
        case promql_parser.VectorSelector():
            chosen = {matcher.name for matcher in expression.matchers.matchers}
            yield Asked(str(expression.name), outer | chosen)
        case promql_parser.MatrixSelector():
            yield from _asked(expression.vector_selector, outer)
        case promql_parser.AggregateExpr():
            grouped = frozenset(expression.modifier.labels if expression.modifier else ())
            yield from _asked(expression.expr, outer | grouped)
        case promql_parser.BinaryExpr():
            matching = expression.modifier.matching if expression.modifier else None
            joined = frozenset(matching.labels if matching else ())
            yield from _asked(expression.lhs, outer | joined)
            yield from _asked(expression.rhs, outer | joined)
        case promql_parser.Call():
            for argument in expression.args:
                yield from _asked(argument, outer)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            yield from _asked(expression.expr, outer)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:
            raise ValueError(f"what is {type(expression).__name__}?")


def unknown(expression: str, exported: Exported) -> list[str]:
    """A sentence for each metric or label in `expression` that nothing exports."""
    known = {**exported, **PROMETHEUS_OWN}
    found = []
    for wanted in asked(expression):
        if wanted.metric not in known:
            found.append(f"nobody exports {wanted.metric}")
        elif missing := wanted.labels - known[wanted.metric] - GIVEN_BY_PROMETHEUS:
            found.append(f"{wanted.metric} has no label {', '.join(sorted(missing))}")
    return found


def kept_labels(expression: str) -> frozenset[str]:
    """The labels that a result of `expression` may have: those of its grouping, if it groups."""
    parsed = promql_parser.parse(expression)
    groupings: list[frozenset[str]] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.AggregateExpr):
            groupings.append(frozenset(node.modifier.labels if node.modifier else ()))

    promql_parser.walk(parsed, visit)
    return groupings[0] if groupings else GIVEN_BY_PROMETHEUS
