"""Positions and parameters as clients write them."""

from __future__ import annotations

import pytest

from tidelog.services.broker.api.fetch import Anchor, Position
from tidelog.services.http.v1.positions import parse_position
from tidelog.storage.records import TIMESTAMP_MS_MAX
from tidelog.wire.errors import Unreadable


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("0", Position(Anchor.OFFSET, 0)),
        ("9223372036854775807", Position(Anchor.OFFSET, 2**63 - 1)),
        ("earliest", Position(Anchor.EARLIEST)),
        ("latest", Position(Anchor.LATEST)),
        ("-5", Position(Anchor.FROM_END, 5)),
        ("-0", Position(Anchor.FROM_END, 0)),
        ("@0", Position(Anchor.TIMESTAMP, 0)),
        ("@1763712000000", Position(Anchor.TIMESTAMP, 1_763_712_000_000)),
        ("@1970-01-01T00:00:01.5Z", Position(Anchor.TIMESTAMP, 1_500)),
        ("@1970-01-01T01:00:01+01:00", Position(Anchor.TIMESTAMP, 1_000)),
        ("@9999-12-31T23:59:59.999Z", Position(Anchor.TIMESTAMP, TIMESTAMP_MS_MAX)),
    ],
)
def test_a_position_is_read(text: str, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+1",
        "1.0",
        "1e3",
        "0x1",
        " 1",
        "١",
        "EARLIEST",
        "9223372036854775808",
        "-9223372036854775808",
        "9" * 5_000,
        "@",
        "@-1",
        "@yesterday",
        "@2026-01-31T12:00:00",
        "@1969-12-31T23:59:59Z",
        "@9999-12-31T23:59:59-12:00",
        "@" + "9" * 16,
        "@2026-13-01T00:00:00Z",
    ],
)
def test_an_invalid_position_is_refused_with_the_parameters_name(text: str) -> None:
    with pytest.raises(Unreadable) as refusal:
        parse_position(text, "at")
    assert refusal.value.field == "at"
