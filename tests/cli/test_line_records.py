"""Headers, timestamps and tombstones: from flags, from fields and from lines, and back through `topic consume`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.conftest import Tidelog

from tidelog.services.cli.input_lines import line_arrays
from tidelog.services.cli.line_records import LineShape, header_of, key_finder, time_finder, time_ms
from tidelog.storage.errors import Invalid

NOON_MS = 1_769_860_800_000


def shaped(shape: LineShape, text: bytes) -> list[dict[str, Any]]:
    (array,) = line_arrays(iter([text]))
    table, wrong = shape.table(array)
    assert wrong is None
    return table.to_pylist()


def test_constants_are_set_on_every_record_and_empty_values_become_null() -> None:
    shape = LineShape(key_finder(":"), True, headers=(("a", b"1"), ("b", None)), timestamp_ms=7, tombstones=True)
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert shaped(shape, b"k:v\nk:\n") == [
        {"key": b"k", "value": b"v", "timestamp": 7, "headers": headers},
        {"key": b"k", "value": None, "timestamp": 7, "headers": headers},
    ]
    assert shaped(LineShape(tombstones=True), b"\nx\n") == [{"value": None}, {"value": b"x"}]


def test_times_come_from_a_field() -> None:
    shape = LineShape(time_of=time_finder("json:meta.at"))
    lines = b'{"meta":{"at":5}}\n{"meta":{"at":"2026-01-31T12:00:00Z"}}\n{}\n'
    assert [record["timestamp"] for record in shaped(shape, lines)] == [5, NOON_MS, None]


def test_a_line_can_be_a_whole_record() -> None:
    lines = [
        {
            "value": "text",
            "key": "k",
            "timestamp": 5,
            "headers": [{"key": "h", "value": "x"}],
            "offset": 3,
            "topic": "t",
        },
        {"value": {"base64": "/w=="}, "headers": [{"key": "h"}]},
        {"value": {"json": {"a": [1]}}, "key": None},
        {"value": None, "timestamp": "2026-01-31T12:00:00+00:00"},
    ]
    text = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    assert [tuple(record.values()) for record in shaped(LineShape(from_json=True), text)] == [
        (b"text", b"k", 5, [{"key": "h", "value": b"x"}]),
        (b"\xff", None, None, [{"key": "h", "value": None}]),
        (b'{"a":[1]}', None, None, None),
        (None, None, NOON_MS, None),
    ]


@pytest.mark.parametrize(
    "line",
    [b"plain", b"{}", b'{"value":5}', b'{"value":{"base64":"%"}}', b'{"value":{}}', b'{"value":"","timestamp":-1}',
     b'{"value":"","timestamp":"soon"}', b'{"value":"","headers":[{}]}', b'{"value":"\xff"}'],
)  # fmt: skip
def test_a_line_that_is_no_record_ends_the_table(line: bytes) -> None:
    (array,) = line_arrays(iter([b'{"value":"good"}\n' + line + b"\n"]))
    table, wrong = LineShape(from_json=True).table(array)
    assert table.num_rows == 1
    assert isinstance(wrong, Invalid)


@pytest.mark.parametrize("text", ["soon", "2026-01-31T12:00:00", "-5", "999999999999999999", ""])
def test_a_wrong_time_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is no time"):
        time_ms(text)


def test_a_header_has_a_name() -> None:
    assert [header_of("a=b=c"), header_of("a="), header_of("a")] == [("a", b"b=c"), ("a", b""), ("a", None)]
    with pytest.raises(Invalid, match="NAME=VALUE"):
        header_of("=x")


def test_what_is_produced_is_shown_and_can_be_produced_again(tidelog: Tidelog) -> None:
    tidelog("topic", "create", "shown", "-c", "retention.ms=-1")
    flags = ["-k", ":", "-Z", "-H", "source=test", "-H", "empty", "-T", "2026-01-31T12:00:00Z"]
    assert tidelog("topic", "produce", "shown", *flags, stdin=b"k:v\nk:\n").returncode == 0
    printed = tidelog("topic", "consume", "shown", "-e", "-f", "%k %v %V %T %h\\n").stdout
    assert printed == b"k v 1 %d source=test,empty=\nk  -1 %d source=test,empty=\n" % (NOON_MS, NOON_MS)
    records = tidelog("topic", "consume", "shown", "-e", "--json").stdout
    tidelog("topic", "create", "again", "-c", "retention.ms=-1")
    assert tidelog("topic", "produce", "again", "--from-json", stdin=records).returncode == 0
    assert tidelog("topic", "consume", "again", "-e", "--json").stdout == records.replace(b'"shown"', b'"again"')


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--from-json", "-k", ":"], b"the lines say all"),
        (["-T", "soon"], b"is no time"),
        (["-T", "json:"], b"names no field"),
        (["-H", "=x"], b"NAME=VALUE"),
    ],
)
def test_wrong_flags_are_reported(tidelog: Tidelog, flags: list[str], told: bytes) -> None:
    ended = tidelog("topic", "produce", "never", *flags, stdin=b"x\n")
    assert ended.returncode == 2
    assert told in ended.stderr


def test_a_wrong_line_is_named(tidelog: Tidelog) -> None:
    ended = tidelog("topic", "produce", "numbered", "--from-json", stdin=b'{"value":"a"}\n{"value":7}\n')
    assert ended.returncode == 2
    assert b"line 2 is wrong: it is no record as consume --json prints it" in ended.stderr
    assert b"--resume-from-line 2" in ended.stderr
