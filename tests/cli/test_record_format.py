"""kcat's format strings."""

import pytest

from tidelog.client import Record
from tidelog.services.cli.record_format import LineFormat
from tidelog.storage.errors import Invalid

RECORD = Record("web", 3, 41, 1_700_000_000_000, b"k", b"v\xff", (("h", b"1"), ("n", None)))
BARE = Record("web", 0, 0, 0, None, None, ())


@pytest.mark.parametrize(
    ("text", "record", "expected"),
    [
        ("%t %p %o %k %v\\n", RECORD, b"web 3 41 k v\xff\n"),
        ("%s|%S|%V|%K|%T", RECORD, b"v\xff|2|2|1|1700000000000"),
        ("%h", RECORD, b"h=1,n="),
        ("%R%s", RECORD, b"\0\0\0\2v\xff"),
        ("%k%v%h", BARE, b""),
        ("%K %V %R", BARE, b"-1 -1 \xff\xff\xff\xff"),
        ("100%%\\t\\x41\\\\\\0\\r", BARE, b"100%\tA\\\0\r"),
        ("", RECORD, b""),
        ("ä", RECORD, "ä".encode()),
        ("a\nb", RECORD, b"a\nb"),
    ],
)
def test_a_record_is_rendered(text: str, record: Record, expected: bytes) -> None:
    assert LineFormat(text, "web").render(record) == expected


@pytest.mark.parametrize("wrong", ["%", "%q", "a%", "\\q", "\\", "\\x4"])
def test_an_invalid_format_is_refused(wrong: str) -> None:
    with pytest.raises(Invalid, match="format"):
        LineFormat(wrong, "web")
