"""Bodies are read within bounds of size, time and memory."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa
import pytest
from starlette.requests import Request
from starlette.types import Message

from tidelog.services.http.bodies.body_reading import BodyReader
from tidelog.storage.errors import Overloaded, TooLarge, UnsupportedMedia
from tidelog.storage.object_store import Body
from tidelog.wire.errors import BodyTimeout, ClientGone, Unreadable

LIMIT_BYTES = 1_000


@pytest.fixture
def reader() -> BodyReader:
    return BodyReader(LIMIT_BYTES, 1_500, 0.05)


def arriving(chunks: list[bytes], *, leaves: bool = False, **headers: str) -> Request:
    """A request whose body arrives in `chunks`; then it ends, or the client disconnects."""
    messages: Iterator[Message] = iter(
        [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        + [{"type": "http.disconnect"} if leaves else {"type": "http.request", "body": b"", "more_body": False}]
    )

    async def receive() -> Message:
        return next(messages)

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": pairs}, receive)


async def read(reader: BodyReader, request: Request) -> Body:
    with reader.in_flight() as held:
        return await reader.read(request, held)


async def test_chunks_are_joined(reader: BodyReader) -> None:
    assert await read(reader, arriving([b"ab", b"", b"cd"])) == b"abcd"
    assert await read(reader, arriving([])) == b""
    assert await read(reader, arriving([b"x" * LIMIT_BYTES])) == b"x" * LIMIT_BYTES


async def test_a_body_with_a_declared_length_comes_in_one_buffer_of_that_size(reader: BodyReader) -> None:
    before = pa.total_allocated_bytes()
    body = await read(reader, arriving([b"x" * 300, b"y" * 600], content_length="900"))
    assert body == b"x" * 300 + b"y" * 600
    assert 900 <= pa.total_allocated_bytes() - before < 1_000


@pytest.mark.usefixtures("_all_given_back")
async def test_a_body_that_ends_before_its_declared_length_is_kept_as_received(reader: BodyReader) -> None:
    assert await read(reader, arriving([b"ab", b"cd"], content_length="900")) == b"abcd"


@pytest.mark.usefixtures("_all_given_back")
async def test_a_body_longer_than_its_declared_length_cannot_be_read(reader: BodyReader) -> None:
    with pytest.raises(Unreadable, match="Content-Length"):
        await read(reader, arriving([b"ab", b"cd"], content_length="3"))


@pytest.mark.usefixtures("_all_given_back")
async def test_declared_lengths_take_no_more_memory_than_bodies_may(reader: BodyReader) -> None:
    """A body with a large declared length and little data is collected in pieces if others have declared too much."""
    with reader.in_flight() as first:
        await reader.read(arriving([b"a", b"b"], content_length="900"), first)
        assert (first.bytes_held, reader.allotted_bytes) == (2, 900)
        with reader.in_flight() as second:
            assert await reader.read(arriving([b"c", b"d"], content_length="800"), second) == b"cd"
            assert reader.allotted_bytes == 900


async def test_a_content_length_over_the_limit_is_refused_before_a_byte_is_read(reader: BodyReader) -> None:
    request = arriving([], content_length=str(LIMIT_BYTES + 1))
    with pytest.raises(TooLarge) as refusal:
        await read(reader, request)
    assert (refusal.value.limit_name, refusal.value.limit_bytes) == ("request.max.bytes", LIMIT_BYTES)
    assert (await request.receive())["type"] == "http.request"


async def test_a_body_without_a_length_is_refused_at_the_chunk_past_the_limit(reader: BodyReader) -> None:
    request = arriving([b"x" * 600, b"x" * 600, b"never read"])
    with pytest.raises(TooLarge):
        await read(reader, request)
    assert (await request.receive())["body"] == b"never read"


@pytest.mark.parametrize("length", ["-1", "abc", "", "1e9", "٣"])
async def test_a_content_length_that_is_not_a_number_is_left_to_the_bytes_that_come(
    reader: BodyReader, length: str
) -> None:
    assert await read(reader, arriving([b"ab"], content_length=length)) == b"ab"


async def test_a_slow_body_is_given_up(reader: BodyReader) -> None:
    async def receive() -> Message:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    with pytest.raises(BodyTimeout):
        await read(reader, Request({"type": "http", "headers": []}, receive))


async def test_a_client_that_leaves_is_noticed(reader: BodyReader) -> None:
    with pytest.raises(ClientGone):
        await read(reader, arriving([b"half"], leaves=True))


@pytest.fixture
async def _all_given_back(reader: BodyReader) -> AsyncIterator[None]:
    yield
    assert (reader.in_flight_bytes, reader.allotted_bytes) == (0, 0)


@pytest.mark.usefixtures("_all_given_back")
async def test_bodies_together_are_bounded_and_give_back_what_they_took(reader: BodyReader) -> None:
    with reader.in_flight() as first:
        await reader.read(arriving([b"x" * 900]), first)
        with pytest.raises(Overloaded):
            await read(reader, arriving([b"x" * 400, b"x" * 400]))
        assert reader.in_flight_bytes == 900
        assert await read(reader, arriving([b"x" * 600])) == b"x" * 600


def zstd(body: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(body, asbytes=True)
    return packed


async def test_compressed_bodies_are_undone(reader: BodyReader) -> None:
    body = bytes(range(256)) * 3
    assert await read(reader, arriving([gzip.compress(body)], content_encoding="gzip")) == body
    assert await read(reader, arriving([zstd(body)], content_encoding="zstd")) == body
    assert await read(reader, arriving([gzip.compress(b"a") + gzip.compress(b"b")], content_encoding="gzip")) == b"ab"


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_body_that_expands_past_the_limit_is_refused_without_expanding(
    reader: BodyReader, encoding: str
) -> None:
    bomb = b"\0" * 100_000
    packed = gzip.compress(bomb) if encoding == "gzip" else zstd(bomb)
    assert len(packed) < LIMIT_BYTES
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(TooLarge, match=encoding):
        await read(reader, arriving([packed], content_encoding=encoding))
    assert pa.default_memory_pool().max_memory() - before < 10 * LIMIT_BYTES


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        # without a time in the header; otherwise two workers would collect two different tests
        pytest.param(gzip.compress(b"hello", mtime=0)[:-1], "gzip", id="gzip-cut"),
        pytest.param(gzip.compress(b"hello", mtime=0) + b"junk", "gzip", id="gzip-and-more"),
        pytest.param(b"junk", "gzip", id="gzip-foreign"),
        pytest.param(zstd(b"hello")[:-1], "zstd", id="zstd-cut"),
        pytest.param(zstd(b"hello") + b"junk", "zstd", id="zstd-and-more"),
        pytest.param(b"junk", "zstd", id="zstd-foreign"),
    ],
)
async def test_a_damaged_compressed_body_cannot_be_read(reader: BodyReader, body: bytes, encoding: str) -> None:
    with pytest.raises(Unreadable):
        await read(reader, arriving([body], content_encoding=encoding))


async def test_another_encoding_is_refused(reader: BodyReader) -> None:
    with pytest.raises(UnsupportedMedia):
        await read(reader, arriving([b"x"], content_encoding="br"))
