"""Positions as people write them, converted to the interface's form."""

import pytest

from tidelog.client.admin import checked_position
from tidelog.storage.errors import Invalid


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("start", "earliest"),
        ("beginning", "earliest"),
        ("earliest", "earliest"),
        ("end", "latest"),
        ("latest", "latest"),
        ("42", "42"),
        (42, "42"),
        ("-10", "-10"),
        (" 7 ", "7"),
        ("@2026-01-31T12:00:00Z", "@2026-01-31T12:00:00Z"),
        ("@1700000000000", "@1700000000000"),
    ],
)
def test_a_position_is_sent_as_the_interface_takes_it(written: str | int, sent: str) -> None:
    assert checked_position(written) == sent


@pytest.mark.parametrize("wrong", ["", "@", "--1", "1.5", "begin", "9" * 20])
def test_an_invalid_position_is_refused_with_the_forms(wrong: str) -> None:
    with pytest.raises(Invalid, match="start, end, N, -N or @time"):
        checked_position(wrong)
