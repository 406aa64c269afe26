"""A JSON object with its own checksum; an object without one is accepted."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.errors import Corrupt
from tidelog.storage.json_checksum import check_checksum, with_checksum

OBJECTS = st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=20), min_size=1)


@given(document=OBJECTS)
def test_an_older_reader_finds_its_fields_and_one_more(document: dict[str, object]) -> None:
    text = json.dumps(document).encode()
    stored = with_checksum(text)
    check_checksum("key", stored)
    check_checksum("key", text)
    found = json.loads(stored)
    assert re.fullmatch("[0-9a-f]{8}", found.pop("crc32"))
    assert found == {name: value for name, value in document.items() if name != "crc32"}


@given(document=OBJECTS, data=st.data())
def test_a_changed_byte_before_it_is_noticed(document: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(document).encode()
    stored = with_checksum(text)
    place = data.draw(st.integers(0, len(text) - 2))
    bad = stored[:place] + bytes([stored[place] ^ data.draw(st.integers(1, 255))]) + stored[place + 1 :]
    with pytest.raises(Corrupt, match="checksum") as caught:
        check_checksum("meta/7.json", bad)
    assert caught.value.name == "meta/7.json"


@pytest.mark.parametrize("checksum", [b"00000000", b"", b"0A1B2C3D", b"not a sum"])
def test_another_checksum_than_its_own_is_refused(checksum: bytes) -> None:
    with pytest.raises(Corrupt):
        check_checksum("key", b'{"a":1,"crc32":"%b"}' % checksum)
