"""Bytes become lines: the same records for any division into blocks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.services.cli import input_lines
from tidelog.services.cli.input_lines import line_arrays
from tidelog.services.cli.line_records import LineShape, key_finder
from tidelog.storage.errors import Invalid, TooLarge


def lines_of(*given_blocks: bytes) -> list[bytes]:
    return [line for array in line_arrays(iter(given_blocks)) for line in array.to_pylist()]


@given(st.lists(st.binary(min_size=1, max_size=12).map(lambda data: data.replace(b"a", b"\n")), max_size=12))
def test_lines_do_not_depend_on_where_blocks_end(given_blocks: list[bytes]) -> None:
    data = b"".join(given_blocks)
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert lines_of(*given_blocks) == expected


def test_the_bytes_after_the_last_newline_are_a_record() -> None:
    assert lines_of(b"one\ntw", b"o") == [b"one", b"two"]


def test_other_bytes_are_kept() -> None:
    assert lines_of(b"\r\n\0\xff\r\n\n") == [b"\r", b"\0\xff\r", b""]


def test_a_line_without_an_end_is_refused_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lines, "LINE_BYTES_MAX", 10)
    assert lines_of(b"x" * 5, b"x" * 5) == [b"x" * 10]
    with pytest.raises(TooLarge):
        lines_of(b"x" * 5, b"x" * 6, b"\n")


@pytest.mark.parametrize(
    ("finder", "line", "expected"),
    [
        (":", b"k:v:w", (b"k", b"v:w")),
        (":", b"no key", (None, b"no key")),
        (":", b":v", (b"", b"v")),
        ("::", b"a::b", (b"a", b"b")),
        ("\\t", b"a\tb", (b"a", b"b")),
        ("json:user.id", b'{"user":{"id":"u1"}}', (b"u1", b'{"user":{"id":"u1"}}')),
        ("json:n", b'{"n": 7}', (b"7", b'{"n": 7}')),
        ("json:n", b'{"m": 7}', (None, b'{"m": 7}')),
        ("json:n.x", b'{"n": 7}', (None, b'{"n": 7}')),
    ],
)
def test_a_key_is_found(finder: str, line: bytes, expected: tuple[bytes | None, bytes]) -> None:
    assert key_finder(finder)(line) == expected


@pytest.mark.parametrize("wrong", ["", "json:", "json:a..b"])
def test_a_key_that_names_nothing_is_refused(wrong: str) -> None:
    with pytest.raises(Invalid):
        key_finder(wrong)


def test_a_line_that_is_not_json_is_reported() -> None:
    with pytest.raises(Invalid, match="not JSON"):
        key_finder("json:id")(b"plain text")


def test_keys_stand_beside_their_values() -> None:
    (array,) = line_arrays(iter([b"a:1\n2\n"]))
    table, wrong = LineShape(key_finder(":")).table(array)
    assert (table.to_pydict(), wrong) == ({"key": [b"a", None], "value": [b"1", b"2"]}, None)
    table, wrong = LineShape().table(array)
    assert (table.to_pydict(), wrong) == ({"value": [b"a:1", b"2"]}, None)


@pytest.mark.parametrize(("finder", "told"), [(":", "no key.*--allow-missing-key"), ("json:id", "not JSON")])
def test_a_table_ends_before_the_first_line_that_is_wrong(finder: str, told: str) -> None:
    (array,) = line_arrays(iter([b'{"id":1}\n{"id":2}\nplain\n{"id":3}\n']))
    table, wrong = LineShape(key_finder(finder), key_required=True).table(array)
    assert table.num_rows == 2
    assert re.search(told, str(wrong))
