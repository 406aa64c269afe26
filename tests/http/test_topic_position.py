"""Positions in a topic as text: read back as written, bounded, and refused if invalid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.services.http.v1.topic_position import (
    PLAIN_PARTITIONS_MAX,
    POSITION_PARTITIONS_MAX,
    parse_position_text,
    position_headers,
    position_text,
)
from tidelog.wire import headers
from tidelog.wire.errors import Unreadable

OFFSETS = st.dictionaries(st.integers(0, 10**6), st.integers(0, 2**59), min_size=1, max_size=60)


@given(OFFSETS)
def test_a_position_is_read_back_as_it_was_written(offsets: dict[int, int]) -> None:
    assert parse_position_text(position_text(offsets), "Last-Event-ID") == offsets


def test_few_partitions_can_be_read_by_people_and_many_are_a_token() -> None:
    few = dict.fromkeys(range(PLAIN_PARTITIONS_MAX), 7)
    assert position_text(few).startswith("0:7,1:7,")
    assert position_text({**few, PLAIN_PARTITIONS_MAX: 7}).startswith("~")


@pytest.mark.parametrize(("offset_max", "bytes_max"), [(1, 40), (10**6, 5_000), (10**12, 8_500)])
def test_the_position_of_as_many_partitions_as_one_may_hold_fits_a_head(offset_max: int, bytes_max: int) -> None:
    scattered = {partition: partition * 7_919_191_111 % offset_max for partition in range(POSITION_PARTITIONS_MAX)}
    assert len(position_text(scattered)) <= bytes_max
    assert headers.POSITION in position_headers(scattered)
    assert position_headers({**scattered, POSITION_PARTITIONS_MAX: 0}) == {}


def test_records_read_since_are_appended() -> None:
    begun = position_text(dict.fromkeys(range(20), 5))
    assert parse_position_text(f"{begun},3:6,3:7", "x") == {**dict.fromkeys(range(20), 5), 3: 7}


TOKEN = position_text(dict.fromkeys(range(20), 5))


@pytest.mark.parametrize(
    "text",
    ["", "5", "0:", "0:1,", "x:1", "0:1;1:1", "-1:0", "~", "~x", "~AAAA", TOKEN[:-4], TOKEN[1:], f"{TOKEN}AAAA,", "~é"],
)
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="Last-Event-ID"):
        parse_position_text(text, "Last-Event-ID")


def test_a_token_that_expands_without_end_is_refused() -> None:
    import zlib
    from base64 import urlsafe_b64encode

    bomb = urlsafe_b64encode(zlib.compress(bytes(10_000_000))).decode().rstrip("=")
    with pytest.raises(Unreadable):
        parse_position_text(f"~{bomb}", "x")
