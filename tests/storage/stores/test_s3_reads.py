"""GETs after the pattern of the first one: the same request, the same errors, one request each."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.components.s3_endpoint import S3Bucket, S3Endpoint
from tests.storage.stores.misbehaving_server import (
    Act,
    MisbehavingServer,
    Request,
    answer,
    raw,
    refusal,
    reset,
    silence,
)

from tidelog.storage.errors import Denied, Invalid, NoSuchObject, TidelogError, Unavailable
from tidelog.storage.object_store import ByteRange
from tidelog.storage.stores import s3_reads
from tidelog.storage.stores.s3 import S3ObjectStore

TOLD = ('ETag: "tag"', "Last-Modified: Wed, 21 Oct 2026 07:28:00 GMT")
ODD_KEY = "a b/c+d=e%41~(x)*'!&?#/0"
MODIFIED_MS = 1_792_567_680_000


def whole(body: bytes, *, length: int | None = None) -> Act:
    return answer("200 OK", body, TOLD, length=length)


def part(body: bytes, first: int, size: int) -> Act:
    told = f"Content-Range: bytes {first}-{first + len(body) - 1}/{size}"
    return answer("206 Partial Content", body, (*TOLD, told))


@asynccontextmanager
async def store_at(server_url: str, **changes: object) -> AsyncIterator[S3ObjectStore]:
    store = S3ObjectStore("bucket", "prefix", S3Endpoint(server_url, "id", "secret").settings(**changes))
    try:
        yield store
    finally:
        await store.aclose()


def signed_for(request: Request) -> list[str]:
    """Key id, day, region, service and the like of a signature."""
    return request.headers["authorization"].split("Credential=")[1].split(",")[0].split("/")


async def test_the_second_get_asks_as_the_first_one_did() -> None:
    with MisbehavingServer(part(b"bc", 1, 4), part(b"bc", 1, 4)) as server:
        async with store_at(server.url) as store:
            first, second = [await store.get(ODD_KEY, ByteRange(1, 2)) for _ in range(2)]
        made_by_botocore, made_here = server.requests
    assert first == second
    assert (second.data, second.info.size, second.info.version) == (b"bc", 4, '"tag"')
    assert second.info.modified_ms == MODIFIED_MS
    assert made_here.method == "GET"
    assert made_here.target == made_by_botocore.target
    for header in ("host", "range", "user-agent", "x-amz-content-sha256", "accept-encoding"):
        assert made_here.headers[header] == made_by_botocore.headers[header]
    assert signed_for(made_here) == signed_for(made_by_botocore)
    assert "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date" in made_here.headers["authorization"]
    assert not any(header.startswith("amz-sdk-") for header in made_here.headers), "those are the first request's own"


async def test_a_get_of_all_after_one_of_a_range_asks_for_all() -> None:
    with MisbehavingServer(part(b"bc", 1, 4), whole(b"abcd")) as server:
        async with store_at(server.url) as store:
            await store.get("a", ByteRange(1, 2))
            assert (await store.get("b")).data == b"abcd"
    assert "range" not in server.requests[1].headers
    assert server.requests[1].target == "/bucket/prefix/b"


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (refusal("500 Internal Server Error", "InternalError"), Unavailable),
        (refusal("503 Slow Down", "SlowDown"), Unavailable),
        (answer("502 Bad Gateway", b"<html><body>no gateway</body></html>"), Unavailable),
        (refusal("429 Too Many Requests", "TooManyRequests"), Unavailable),
        (refusal("403 Forbidden", "AccessDenied"), Denied),
        (refusal("404 Not Found", "NoSuchKey"), NoSuchObject),
        (refusal("404 Not Found", "NoSuchBucket"), Denied),
        (answer("404 Not Found"), NoSuchObject),
        (refusal("405 Method Not Allowed", "MethodNotAllowed"), Invalid),
        (reset, Unavailable),
        (raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), Unavailable),
        (whole(b"half", length=8), Unavailable),
        (whole(b"", length=8), Unavailable),
        (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: x\r\n\r\n4\r\nhalf\r\n"), Unavailable),
        (raw(b"HTTP/1.1 200 OK\r\nETag: x\r\n\r\nhow long was it meant to be?"), Unavailable),
        (answer("200 OK", b"whose?"), Unavailable),
    ],
)
async def test_a_later_get_that_fails_is_one_request_and_one_honest_error(
    act: Act, expected: type[TidelogError]
) -> None:
    with MisbehavingServer(whole(b"first"), act, whole(b"third")) as server:
        async with store_at(server.url) as store:
            await store.get("a")
            with pytest.raises(expected) as told:
                await store.get("a")
            assert (await store.get("a")).data == b"third"
    assert type(told.value) is expected
    assert len(server.requests) == 3


async def test_a_later_get_without_an_answer_ends_after_its_time() -> None:
    with MisbehavingServer(whole(b"first"), silence) as server:
        async with store_at(server.url, request_s_max=5.0) as store:  # connecting takes time too
            await store.get("a")
            with pytest.raises(Unavailable, match="within 5 s"):
                await store.get("a")
    assert len(server.requests) == 2


async def test_a_later_get_beyond_the_end_gives_no_bytes_and_the_info() -> None:
    script = whole(b"first"), refusal("416 Range Not Satisfiable", "InvalidRange"), whole(b"abcd")
    with MisbehavingServer(*script) as server:
        async with store_at(server.url) as store:
            await store.get("a")
            stored = await store.get("a", ByteRange(4, 2))
    assert (stored.data, stored.info.size) == (b"", 4)
    assert [request.method for request in server.requests] == ["GET", "GET", "HEAD"]


async def test_a_bucket_that_lies_elsewhere_by_now_is_followed_and_asked_there_from_then_on() -> None:
    moved = answer("301 Moved Permanently", b"<Error><Code>PermanentRedirect</Code></Error>", REGION_TOLD)
    with MisbehavingServer(whole(b"first"), moved, moved, whole(b"second"), whole(b"third")) as server:
        async with store_at(server.url) as store:
            for body in (b"first", b"second", b"third"):
                assert (await store.get("a")).data == body
    regions = [signed_for(request)[2] for request in server.requests]
    assert regions == ["us-east-1", "us-east-1", "us-east-1", "eu-west-1", "eu-west-1"]


REGION_TOLD = ("x-amz-bucket-region: eu-west-1",)


async def test_of_a_bucket_that_signs_by_sessions_every_get_is_botocores() -> None:
    with MisbehavingServer(answer("200 OK", S3_EXPRESS_SESSION), whole(b"body")) as server:
        endpoint = S3Endpoint(server.url, "id", "secret")
        store = S3ObjectStore("bucket--use1-az4--x-s3", "", endpoint.settings(path_style=False))
        for _ in range(2):
            assert (await store.get("a")).data == b"body"
        await store.aclose()
    session, *gets = server.requests
    assert session.target == "/bucket--use1-az4--x-s3?session"
    assert [request.headers["x-amz-s3session-token"] for request in gets] == ["token", "token"]
    assert len({request.headers["amz-sdk-invocation-id"] for request in gets}) == 2


S3_EXPRESS_SESSION = b"""<CreateSessionResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Credentials>
<SessionToken>token</SessionToken><SecretAccessKey>secret</SecretAccessKey><AccessKeyId>id</AccessKeyId>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>"""


async def test_keys_that_expire_are_renewed_for_later_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    program = tmp_path / "keys.py"
    program.write_text(KEYS_THAT_EXPIRE)
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {sys.executable} {program} {tmp_path / 'count'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with MisbehavingServer(whole(b"body")) as server:
        async with store_at(server.url, access_key_id=None, secret_access_key=None) as store:
            for _ in range(3):
                await store.get("a")
    numbers = [int(signed_for(request)[0].removeprefix("key")) for request in server.requests]
    assert numbers[0] < numbers[1] < numbers[2]
    assert [request.headers["x-amz-security-token"] for request in server.requests] == [f"token{n}" for n in numbers]


KEYS_THAT_EXPIRE = """
import datetime, json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = len(count.read_text()) if count.exists() else 0
count.write_text("x" * (number + 1))
ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1)
print(json.dumps({"Version": 1, "AccessKeyId": f"key{number}", "SecretAccessKey": "secret",
                  "SessionToken": f"token{number}", "Expiration": ends.isoformat()}))
"""
"""They end so soon that they are to be renewed before each use."""


async def test_a_get_that_is_cancelled_while_it_reads_gives_its_connection_back() -> None:
    begun = threading.Event()

    def half(connection: socket.socket, _: Request) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        begun.set()
        return bool(connection.recv(1))

    with MisbehavingServer(whole(b"first"), half, whole(b"third")) as server:
        async with store_at(server.url, connections_max=1) as store:
            await store.get("a")
            reading = asyncio.create_task(store.get("a"))
            assert await asyncio.to_thread(begun.wait, 60)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert (await store.get("a")).data == b"third"


async def test_a_real_store_gives_many_readers_at_once_what_each_asked_for(minio_bucket: S3Bucket) -> None:
    store = S3ObjectStore(minio_bucket.name, "some prefix", minio_bucket.endpoint.settings())
    bodies = {f"{ODD_KEY}{number}": bytes([number]) * (700_000 + number) for number in range(8)}
    for key, body in bodies.items():
        await store.put(key, body)
    asked = [(key, ByteRange(start, 600_000)) for key in bodies for start in (0, 1, 99_999)]
    for _ in range(2):
        found = await asyncio.gather(*(store.get(key, byte_range) for key, byte_range in asked))
        for (key, byte_range), stored in zip(asked, found, strict=True):
            start, stop = byte_range.within(len(bodies[key]))
            assert stored.data == bodies[key][start:stop]
            assert (stored.info.key, stored.info.size) == (key, len(bodies[key]))
    await store.aclose()


async def test_a_real_store_gives_a_large_body_whole(minio_bucket: S3Bucket) -> None:
    store = S3ObjectStore(minio_bucket.name, "", minio_bucket.endpoint.settings())
    body = bytes(range(251)) * 100_000
    version = await store.put("large", body)
    for _ in range(3):
        stored = await store.get("large")
        assert stored.data == body
        assert stored.info == await store.head("large")
        assert stored.info.version == version
    await store.aclose()


async def test_no_more_memory_is_reserved_than_a_body_may_be_believed_to_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_reads, "RESERVED_BYTES_MAX", 4)
    script = [whole(b""), whole(b"abc"), whole(b"abcd"), whole(b"abcde"), whole(b"half", length=1 << 50)]
    with MisbehavingServer(whole(b"first"), *script) as server:
        async with store_at(server.url) as store:
            await store.get("a")
            for body in (b"", b"abc", b"abcd", b"abcde"):
                assert (await store.get("a")).data == body
            with pytest.raises(Unavailable):
                await store.get("a")
