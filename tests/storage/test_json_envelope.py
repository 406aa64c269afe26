"""JSON with a checksum, plain if small and a zstd frame if large; damage of any kind is detected."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.storage.errors import Corrupt, NewerFormat
from tidelog.storage.formats import Format
from tidelog.storage.manifests.json_envelope import PACKED_BYTES_MIN, seal, unseal

KEY = "meta/some.json"


def version(number: int) -> Format:
    return Format("test", number, number)


LARGE = msgspec.json.encode(["a name that repeats itself"] * 4_000)


@given(value=st.recursive(st.none() | st.text() | st.integers(0, 2**53), lambda inner: st.lists(inner, max_size=5)))
def test_a_sealed_envelope_is_unsealed(value: object) -> None:
    content = msgspec.json.encode(value)
    assert unseal(KEY, seal(version(3), content), version(3)) == content


@pytest.mark.parametrize("size", [PACKED_BYTES_MIN - 1, PACKED_BYTES_MIN, 3 * PACKED_BYTES_MIN])
def test_large_content_is_packed(size: int) -> None:
    content = b'"' + b"x" * (size - 2) + b'"'
    sealed = seal(version(1), content)
    assert (len(sealed) < size / 10) == (size >= PACKED_BYTES_MIN)
    assert unseal(KEY, sealed, version(1)) == content


@given(place=st.integers(0, len(seal(version(1), LARGE)) - 1), bit=st.integers(0, 7))
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_of_packed_content_is_noticed_or_means_the_same(place: int, bit: int) -> None:
    good = seal(version(1), LARGE)
    bad = good[:place] + bytes([good[place] ^ (1 << bit)]) + good[place + 1 :]
    try:
        assert unseal(KEY, bad, version(1)) == LARGE
    except (Corrupt, NewerFormat):
        return


def test_truncated_packed_content_is_noticed() -> None:
    good = seal(version(1), LARGE)
    for length in range(len(good)):
        with pytest.raises(Corrupt):
            unseal(KEY, good[:length], version(1))


@pytest.mark.parametrize("content_bytes", [0, -1, 17, PACKED_BYTES_MIN, len(LARGE) - 1, len(LARGE) + 1, 2**62])
def test_a_frame_of_another_size_than_it_says_is_refused_and_takes_no_memory(content_bytes: int) -> None:
    line, _, frame = seal(version(1), LARGE).partition(b"\n")
    lying = line.replace(b":%d}" % len(LARGE), b":%d}" % content_bytes)
    assert lying != line
    with pytest.raises(Corrupt):
        unseal(KEY, lying + b"\n" + frame, version(1))


def test_another_format_version_is_refused_in_both_forms() -> None:
    for content in (b"[]", LARGE):
        with pytest.raises(NewerFormat, match=r"version 2 .* reads up to 1"):
            unseal(KEY, seal(version(2), content), version(1))


@pytest.mark.parametrize("data", [b"", b"\n", b"null", b"{}\n", b'{"format_version":1}', b"\xff\n\xff", b"[" * 99_999])
def test_an_invalid_envelope_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        unseal(KEY, data, version(1))
    assert caught.value.name == KEY
