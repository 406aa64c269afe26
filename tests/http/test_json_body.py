"""JSON bodies: three forms of bytes that cannot be confused, and refusals that name the field."""

from __future__ import annotations

import json

import pytest

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.bodies.json_body import decode_json
from tidelog.storage.errors import Invalid
from tidelog.storage.records import DRAFT_SCHEMA
from tidelog.wire.errors import Unreadable


def decode(*records: object) -> Draft:
    return decode_json(json.dumps({"records": records}).encode(), 100)


def test_every_part_of_a_record_arrives() -> None:
    draft = decode(
        {
            "key": "k",
            "value": "ä",
            "timestamp": 5,
            "headers": [{"key": "h", "value": {"base64": "AAE="}}, {"key": "i", "value": None}],
            "partition": 3,
        },
        {"value": None},
    )
    assert draft.records.schema == DRAFT_SCHEMA
    assert draft.records.column("key").to_pylist() == [b"k", None]
    assert draft.records.column("value").to_pylist() == ["ä".encode(), None]
    assert draft.records.column("timestamp").cast("int64").to_pylist() == [5, None]
    assert draft.records.column("headers").to_pylist() == [
        [{"key": "h", "value": b"\0\1"}, {"key": "i", "value": None}],
        None,
    ]
    assert draft.partitions is not None
    assert draft.partitions.to_pylist() == [3, None]


def test_the_three_forms_of_a_value() -> None:
    body = rb'{"records":[{"value":"{}"},{"value":{"base64":"/wA="}},{"value":{"json": {"a":  [1.50, "\u00e9"] } }}]}'
    values = decode_json(body, 10).records.column("value").to_pylist()
    assert values == [b"{}", b"\xff\0", b'{"a":  [1.50, "\\u00e9"] }']


@pytest.mark.parametrize("value", [b"null", b"0", b"[1, 2]", b'"text"', b"1e999", b"12345678901234567890123", b"{}"])
def test_json_values_are_kept_as_their_bytes_stand(value: bytes) -> None:
    draft = decode_json(b'{"records":[{"value":{"json":' + value + b"}}]}", 10)
    assert draft.records.column("value").to_pylist() == [value]


def test_a_record_names_no_partition_where_none_does() -> None:
    assert decode({"value": "x"}).partitions is None


@pytest.mark.parametrize(("text", "time_ms"), [("1970-01-01T00:00:01Z", 1_000), ("1970-01-01T01:00:00.250+01:00", 250)])
def test_a_timestamp_may_be_iso_8601_with_a_zone(text: str, time_ms: int) -> None:
    draft = decode({"value": "x", "timestamp": text})
    assert draft.records.column("timestamp").cast("int64").to_pylist() == [time_ms]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"\xff",
        b"nul",
        b'\xef\xbb\xbf{"records":[]}',
        b'{"records":[{"value":NaN}]}',
        b'{"records":[{"value":"\xff"}]}',
        b'{"records":[{"value":"\\ud800"}]}',
        b'{"records":[{"value":"\\udc00x"}]}',
        b'{"records":[{"value":"a\nb"}]}',
        b'{"records":[{"value":"x"}]} trailing',
        b'{"records":[{"value":"x"',
        b'{"records":[{"value":{"json":"\xff"}}]}',
        b'{"records":[{"value":{"json":[}}]}',
        b'{"records":[{"value":{"json":' + b"[" * 100_000 + b"]" * 100_000 + b"}}]}",
    ],
)
def test_a_body_that_is_not_json_cannot_be_read(body: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_json(body, 100)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"value": 1}, "records[1].value"),
        ({"value": 1.5}, "records[1].value"),
        ({"value": True}, "records[1].value"),
        ({"value": ["x"]}, "records[1].value"),
        ({"value": {"a": 1}}, "records[1].value"),
        ({"value": {}}, "records[1].value"),
        ({"value": {"base64": "AA==", "json": 1}}, "records[1].value"),
        ({"value": {"base64": 1}}, "records[1].value.base64"),
        ({"value": {"base64": "A"}}, "records[1].value.base64"),
        ({"value": {"base64": "AA=A"}}, "records[1].value.base64"),
        ({"value": {"base64": "A A="}}, "records[1].value.base64"),
        ({"value": {"base64": "__8="}}, "records[1].value.base64"),
        ({"value": {"base64": "ä==="}}, "records[1].value.base64"),
        ({"value": "x", "key": 1}, "records[1].key"),
        ({"value": "x", "key": {"base64": "?"}}, "records[1].key.base64"),
        ({"value": "x", "timestamp": 1.5}, "records[1].timestamp"),
        ({"value": "x", "timestamp": -1}, "records[1].timestamp"),
        ({"value": "x", "timestamp": 10**30}, "records[1].timestamp"),
        ({"value": "x", "timestamp": 253_402_300_800_000}, "records[1].timestamp"),
        ({"value": "x", "timestamp": "today"}, "records[1].timestamp"),
        ({"value": "x", "timestamp": "2026-01-01T00:00:00"}, "records[1].timestamp"),
        ({"value": "x", "partition": -1}, "records[1].partition"),
        ({"value": "x", "partition": 2**31}, "records[1].partition"),
        ({"value": "x", "partition": 10**40}, "records[1].partition"),
        ({"value": "x", "partition": "0"}, "records[1].partition"),
        ({"value": "x", "headers": {}}, "records[1].headers"),
        ({"value": "x", "headers": [{"key": "h"}]}, "records[1].headers[0]"),
        ({"value": "x", "headers": [{"key": None, "value": "x"}]}, "records[1].headers[0].key"),
        ({"value": "x", "headers": [{"key": "h", "value": {"base64": "?"}}]}, "records[1].headers[0].value.base64"),
        ({"value": "x", "offset": 1}, "records[1]"),
        ({}, "records[1]"),
        ("x", "records[1]"),
        (None, "records[1]"),
    ],
)
def test_a_record_of_another_form_is_refused_with_its_path(record: object, field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        decode({"value": "good"}, record)
    assert (refusal.value.field, refusal.value.record) == (field, 1)


@pytest.mark.parametrize(
    "body",
    [b"[]", b"1", b'"x"', b"null", b"{}", b'{"records":null}', b'{"records":{}}', b'{"records":[]}', b'{"rows":[]}'],
)
def test_a_body_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        decode_json(body, 100)


def test_more_records_than_allowed_are_refused() -> None:
    assert decode(*[{"value": "x"}] * 100).records.num_rows == 100
    with pytest.raises(Invalid, match=r"request\.max\.records"):
        decode(*[{"value": "x"}] * 101)
