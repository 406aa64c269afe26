"""The expressions of `topic consume --where`: which records match, what is not read, and what a mistake says."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.services.cli.where import selection as selection_module
from tidelog.services.cli.where.bounds import HIGHEST, Bounds, Span, TimedSpan, bounds_of, ranges
from tidelog.services.cli.where.expression import Constant, Expression
from tidelog.services.cli.where.json_columns import JsonColumns
from tidelog.services.cli.where.parser import NESTING_MAX, TEXT_CHARACTERS_MAX, parsed
from tidelog.services.cli.where.selection import Selection
from tidelog.storage.errors import Invalid
from tidelog.storage.records import RECORD_SCHEMA

DAY_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z


def batch(*values: bytes | None, headers: list[Any] | None = None, keys: list[bytes | None] | None = None) -> pa.Table:
    count = len(values)
    columns: dict[str, Any] = {
        "offset": list(range(10, 10 + count)),
        "timestamp": [DAY_MS + 1_000 * n for n in range(count)],
        "key": keys or [None] * count,
        "value": list(values),
        "headers": headers or [None] * count,
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in RECORD_SCHEMA})


def chosen(where: str, records: pa.Table, partition: int = 3) -> list[int]:
    """The rows that match."""
    matching = Selection(parsed(where)).matching(records, partition)
    return (np.asarray(matching.column("offset").to_numpy()) - 10).tolist()


def rows(*values: object) -> pa.Table:
    return batch(*(json.dumps(value).encode() for value in values))


EVENTS = rows(
    {"status": 500, "user": {"id": "ann"}, "ok": False},
    {"status": 404, "user": {"id": "bob"}, "path": "/a.b"},
    {"status": 200.5, "user": None, "ok": True},
    {"user": {}, "path": "/a_b\nc", "status": None},
    {"status": "500", "user": "ann"},
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("value.status >= 500", [0]),
        ("500 <= value.status", [0]),
        ("value.status = 500 or value.status <> 500", [0, 1, 2]),
        ("not value.status >= 500", [1, 2, 3, 4]),
        ("value.status < 500.5 and not (value.ok == true or value.path like '%.b')", [0]),
        ("value.status == '500'", [4]),
        ("value.status IN (404, '500', null)", [1, 3, 4]),
        ("value.status not in (404, 500)", [2, 3, 4]),
        ("value.status == null", [3]),
        ("value.status != null and exists value.path", [1]),
        ("value.user.id == 'ann'", [0]),
        ("value.user == 'ann'", [4]),
        ("exists value.user.id", [0, 1]),
        ("value.user.id in ('ann', \"bob\")", [0, 1]),
        ("value.ok == false", [0]),
        ("value.ok != false", [2]),
        ("value['path'] like '/a_b'", [1]),
        ("value.path like '/a\\_b%'", [3]),
        ("value.path matches '^/a[.]b$'", [1]),
        ("value.path not matches 'a'", [0, 2, 4]),
        ("value.nothing.inside > 1", []),
        ("value.nothing == null", [0, 1, 2, 3, 4]),
        ("exists value", [0, 1, 2, 3, 4]),
        ("offset in (11, 13) and partition == 3", [1, 3]),
        ("partition != 3", []),
        ("timestamp > '2026-01-31T12:00:01Z' and timestamp < '2026-01-31T13:00:03+01:00'", [2]),
        ("timestamp == 1769860800000", [0]),
    ],
)
def test_an_expression_chooses_records(where: str, expected: list[int]) -> None:
    assert chosen(where, EVENTS) == expected


def test_keys_headers_and_tombstones() -> None:
    headers = [
        [{"key": "trace", "value": b"a"}, {"key": "trace", "value": b"b"}],
        None,
        [{"key": "other", "value": b"b"}, {"key": "trace-id", "value": None}],
    ]
    records = batch(b"{}", None, b"not json", headers=headers, keys=[b"user-7", None, b"user-8"])
    assert chosen("headers.trace == 'b'", records) == [0]  # of several, the last one counts
    assert chosen("headers.trace == null", records) == [1, 2]
    assert chosen("headers['trace-id'] == null", records) == [0, 1, 2]
    assert chosen("key like 'user-%'", records) == [0, 2]
    assert chosen("key in ('user-8', null)", records) == [1, 2]
    assert chosen("key > 'user-7'", records) == [2]
    assert chosen("value == null", records) == [1]
    assert chosen("value.a == null", records) == [0, 1]


def test_values_that_are_no_json_never_match_and_are_counted() -> None:
    records = batch(b"{}", b"{", b"", b"\xff", b'{"a":1}{"a":1}', b'{"a":', b'{"b":2}}', b"3", b'{"a":"\xff"}', None)
    for where in ("value.a == null", "not value.a == 'x'", "not value.a == 1 and value.b == null"):
        selection = Selection(parsed(where))
        assert (selection.matching(records, 0).column("offset").to_pylist(), selection.not_json) == ([10, 17, 19], 7)
    untouched = Selection(parsed("offset >= 0"))
    assert (untouched.matching(records, 0).num_rows, untouched.not_json) == (10, 0)


def test_whole_numbers_are_compared_exactly() -> None:
    big = 2**53
    records = rows({"n": big}, {"n": big + 1}, {"n": 2**70}, {"n": 1.5}, {"n": big + 1})
    assert chosen(f"value.n == {big + 1}", records) == [1, 4]
    assert chosen(f"value.n > {big}", records) == [1, 2, 4]
    assert chosen(f"value.n == {2**70}", records) == [2]
    assert chosen("value.n < 2", records) == [3]
    assert chosen(f"value.n in ({big + 1}, 0.5)", rows({"n": 0.5}, {"n": float(big)}, {"n": 1.5})) == [0]


def test_only_blocks_with_values_that_do_not_fit_are_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode = selection_module._decoded
    monkeypatch.setattr(selection_module, "_decoded", lambda value: decoded.append(value) or decode(value))
    values = [{"n": n} for n in range(5_000)]
    assert len(chosen("value.n >= 4000", rows(*values))) == 1_000
    assert decoded == []
    values[4_500] = {"n": "text"}  # type: ignore[dict-item]
    assert len(chosen("value.n >= 4000", rows(*values))) == 999
    assert 0 < len(decoded) <= selection_module.BLOCK_ROWS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "b%", "ä\n"]),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2) | st.lists(inner, max_size=1),
    max_leaves=4,
)  # fmt: skip
RECORDS = st.dictionaries(st.sampled_from("ab"), JSON, max_size=2) | JSON
CONSTANTS = st.none() | st.booleans() | st.sampled_from([0, 1, -(2**53) - 1, 0.5, "a", "b%", ""])


def literal(constant: Constant) -> str:
    return repr(constant) if isinstance(constant, str) else json.dumps(constant)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    form = draw(st.sampled_from(["test", "test", "in", "not", "and", "or"] if depth else ["test", "in"]))
    if form in ("and", "or"):
        return f"({draw(expressions(depth - 1))} {form} {draw(expressions(depth - 1))})"
    if form == "not":
        return f"not {draw(expressions(depth - 1))}"
    field = draw(st.sampled_from(["value.a", "value.b", "value.a.b", "value"]))
    if form == "in":
        return f"{field} in ({', '.join(map(literal, draw(st.lists(CONSTANTS, min_size=1, max_size=3))))})"
    constant = draw(CONSTANTS)
    ordered = constant is not None and not isinstance(constant, bool)
    return f"{field} {draw(st.sampled_from(['==', '!=', *(('<', '>=') if ordered else ())]))} {literal(constant)}"


@settings(max_examples=300)
@given(st.lists(RECORDS, max_size=8), expressions())
def test_the_fast_way_chooses_what_decoding_chooses(values: list[object], where: str) -> None:
    records = rows(*values)
    selection = Selection(parsed(where))
    by_columns = selection.matching(records, 0)
    selection._columns = JsonColumns(frozenset({("a",)}), (), False)  # no schema: every value is decoded
    assert by_columns.equals(selection.matching(records, 0))


@settings(max_examples=200)
@given(st.lists(st.integers(0, 9).map(lambda n: {"a": n}), max_size=20), st.sampled_from("<>"), st.integers(0, 9))
def test_a_comparison_is_pythons(values: list[dict[str, int]], sign: str, limit: int) -> None:
    expected = [n for n, value in enumerate(values) if (value["a"] < limit if sign == "<" else value["a"] > limit)]
    assert chosen(f"value.a {sign} {limit}", rows(*values)) == expected


@pytest.mark.parametrize(
    ("where", "why", "place"),
    [
        ("value.status >=", "expected a text, a number", 15),
        ("value.status >= five", "put a text in quotes", 16),
        ("value.status = = 5", "expected a text, a number", 15),
        ("value.status", "expected ==", 12),
        ("status >= 500", "expected a field", 0),
        ("value.a == 'x", "is not closed", 11),
        ("value.a == 1 value.b == 2", "expected `and`", 13),
        ("(value.a == 1", "expected `)`", 13),
        ("value.a in 1", "expected `(`", 11),
        ("value.a in ()", "expected a text, a number", 12),
        ("value[0] == 1", "elements of arrays", 6),
        ("value.a matches '('", "no regular expression", 16),
        ("value.a like 5", "pattern in quotes", 13),
        ("value.a < true", "no order", 10),
        ("key == 7", "is text", 7),
        ("key.x == '7'", "no fields inside", 0),
        ("headers == '7'", "name one header", 0),
        ("offset == 'x'", "whole number", 10),
        ("timestamp > 'soon'", "ISO 8601", 12),
        ("value.a == 1 & value.b == 2", "unexpected character", 13),
        ("", "expected a field", 0),
        ("value.a not 5", "after `not`", 12),
    ],
)
def test_a_mistake_is_marked(where: str, why: str, place: int) -> None:
    with pytest.raises(Invalid, match=re.escape(why)) as refused:
        parsed(where)
    *_, line, mark = str(refused.value).splitlines()
    assert (line.strip(), mark.index("^") - 2) == (where, place)


def test_the_length_and_depth_of_an_expression_are_bounded() -> None:
    parsed("not " * (NESTING_MAX - 1) + "offset == 1")
    with pytest.raises(Invalid, match=str(NESTING_MAX)):
        parsed("not " * NESTING_MAX + "offset == 1")
    with pytest.raises(Invalid, match="10,000 characters"):
        parsed("offset == 1" + " " * TEXT_CHARACTERS_MAX)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("offset >= 5 and offset < 9 and value.a == 1", Bounds(offset=Span(5, 8))),
        ("offset == 5 or offset in (7, 9)", Bounds(offset=Span(5, 9))),
        ("offset == 5 or value.a == 1", Bounds()),
        ("not offset == 5", Bounds()),
        ("timestamp >= 100 and partition == 2", Bounds(timestamp=Span(first=100), partition=Span(2, 2))),
        ("(offset < 0 and offset > 5) or offset == 7", Bounds(offset=Span(7, 7))),
        ("offset != 5", Bounds()),
    ],
)
def test_bounds_follow_from_the_expression(where: str, expected: Bounds) -> None:
    assert bounds_of(parsed(where)) == expected


def test_segments_that_cannot_match_in_time_are_not_read() -> None:
    bounds = [(0, 9, 100, 199), (10, 19, 150, 299), (25, 39, 300, 399), (40, 49, 120, 130)]
    segments = [TimedSpan(last, Span(since, until)) for _, last, since, until in bounds]
    assert ranges(0, 60, Bounds(timestamp=Span(200, 250)), segments) == [(10, 20), (50, 60)]
    assert ranges(0, 60, Bounds(timestamp=Span(0, 160)), segments) == [(0, 20), (40, 60)]
    assert ranges(5, HIGHEST, Bounds(timestamp=Span(150, 350)), segments) == [(5, 40), (50, HIGHEST)]
    assert ranges(0, 60, Bounds(offset=Span(12, 30)), ()) == [(12, 31)]
    assert ranges(0, 20, Bounds(timestamp=Span(300)), segments) == []


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_no_record_that_matches_is_left_out(times: list[tuple[int, int]], since: int, until: int) -> None:
    """Records with any times, in segments of any sizes."""
    segments: list[tuple[int, TimedSpan]] = []
    offset = 0
    for first, size in times:
        if size:
            segments.append((offset, TimedSpan(offset + size - 1, Span(first, first + size))))
        offset += size + 1  # the last offset was compacted away
    bounds = bounds_of(parsed(f"timestamp >= {since} and timestamp <= {until}"))
    kept = ranges(0, offset + 3, bounds, [span for _, span in segments])
    for first, span in segments if since <= until else ():
        if not span.timestamps.within(Span(since, until)).empty:
            assert any(begin <= first and span.last_offset < end for begin, end in kept)
    assert any(begin <= offset + 2 < end for begin, end in kept)  # the tail, whose times are unknown


def test_expressions_are_values() -> None:
    one: Expression = parsed("value.a == 1 and (key == 'x' or not offset > 5)")
    assert one == parsed("  value['a']=1 AND (key == \"x\" OR NOT offset>5) ")
