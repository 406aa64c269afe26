"""Line bodies: text byte for byte, NDJSON with one JSON value per line."""

from __future__ import annotations

import pytest

from tidelog.services.http.bodies.line_body import LineFields, decode_ndjson, decode_text
from tidelog.storage.errors import Invalid
from tidelog.wire.errors import Unreadable

PLAIN = LineFields()


def text_values(body: bytes) -> list[bytes]:
    values: list[bytes] = decode_text(body, 100, PLAIN).records.column("value").to_pylist()
    return values


def ndjson_values(body: bytes) -> list[bytes]:
    values: list[bytes] = decode_ndjson(body, 100, PLAIN).records.column("value").to_pylist()
    return values


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n", [b""]),
        (b"\n\nx", [b"", b"", b"x"]),
        (b"a\r\nb\r", [b"a\r", b"b\r"]),
        (b"\xff\0\x01\n \n", [b"\xff\0\x01", b" "]),
        ("ä\u2028b\x0bc\n".encode(), ["ä\u2028b\x0bc".encode()]),
    ],
)
def test_text_lines_are_kept_byte_for_byte(body: bytes, values: list[bytes]) -> None:
    assert text_values(body) == values


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b'{"a":1}\n[2]\n', [b'{"a":1}', b"[2]"]),
        (b' {"a": 1} \r\n\n \t\r\n"x"', [b' {"a": 1} \r', b'"x"']),
        (b"null\n0\n1e999", [b"null", b"0", b"1e999"]),
    ],
)
def test_ndjson_lines_are_kept_and_blank_ones_skipped(body: bytes, values: list[bytes]) -> None:
    assert ndjson_values(body) == values


@pytest.mark.parametrize(
    "line",
    [
        b"1 2",
        b"{",
        b"[1,",
        b"text",
        b"NaN",
        b'"\xff"',
        b'{"a":\n1}',
        b'"\\ud800"',
        b"[" * 100_000,
        b"\xef\xbb\xbf{}",
        b"1,",
    ],
)
def test_a_line_that_is_not_one_json_value_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(Unreadable) as refusal:
        ndjson_values(b'{"good":1}\n\n' + line + b"\n1\n")
    assert refusal.value.field == "line 3"


@pytest.mark.parametrize("body", [b"", b"\n \n", b"\r\n"])
def test_a_body_without_a_record_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        ndjson_values(body)


def test_an_empty_text_is_no_record() -> None:
    with pytest.raises(Invalid):
        text_values(b"")


def test_more_lines_than_allowed_are_refused_before_they_are_split() -> None:
    assert len(text_values(b"x\n" * 100)) == 100
    with pytest.raises(Invalid, match=r"request\.max\.records"):
        text_values(b"x\n" * 100 + b"x")
    with pytest.raises(Invalid, match=r"request\.max\.records"):
        ndjson_values(b"1\n" * 101)


def test_key_and_timestamp_come_from_fields_of_the_line() -> None:
    fields = LineFields("user.id", "at")
    body = (
        b'{"user":{"id":"\xc3\xa4\\n"},"at":1000}\n{"user":{"id": [1, 2] },"at":"1970-01-01T00:00:02Z"}\n'
        b'{"user":{"id":null},"at":null}\n{"at":3}\n{"user":{}}\n'
    )
    for decode in (decode_text, decode_ndjson):
        records = decode(body, 10, fields).records
        assert records.column("key").to_pylist() == ["ä\n".encode(), b"[1, 2]", None, None, None]
        assert records.column("timestamp").cast("int64").to_pylist() == [1_000, 2_000, None, 3, None]
        assert records.column("value").to_pylist() == body.splitlines()


@pytest.mark.parametrize(
    "line",
    [
        b"plain",
        b"",
        b"[1]",
        b"1",
        b'{"user":1}',
        b'{"user":{"id":"\xff"}}',
        b'{"user":{"id":"\\udc00"}}',
        b'{"user":' + b"[" * 100_000 + b"}",
        b'{"user":{"id":"x"},"at":"today"}',
        b'{"user":{"id":"x"},"at":-1}',
        b'{"user":{"id":"x"},"at":1.5}',
        b'{"user":{"id":"x"},"at":{}}',
        b'{"user":{"id":"x"},"at":99999999999999999999999}',
    ],
)
def test_a_line_without_readable_fields_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(Invalid) as refusal:
        decode_text(b'{"user":{"id":"good"},"at":1}\n' + line + b"\n", 10, LineFields("user.id", "at"))
    assert refusal.value.field == "line 2"
