"""The S3 store with servers that fail: every broken exchange is one request and one accurate error."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp.abc import AbstractStreamWriter
from infra.loopback_ports import free_port
from tests.components.s3_endpoint import S3Bucket, S3Endpoint
from tests.storage.stores.misbehaving_server import Act, MisbehavingServer, answer, raw, refusal, reset, silence

from tidelog.storage.errors import Conflict, Contended, Denied, Invalid, NotFound, TidelogError, Unavailable
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore
from tidelog.storage.stores.s3_writes import SLICE_BYTES, ViewPayload

Call = Callable[[ObjectStore], Awaitable[object]]

CALLS: dict[str, Call] = {
    "get": lambda store: store.get("a"),
    "get range": lambda store: store.get("a", ByteRange(1, 2)),
    "put": lambda store: store.put("a", b"body"),
    "put if version": lambda store: store.put("a", b"body", if_version='"tag"'),
    "create": lambda store: store.create("a", b"body"),
    "delete": lambda store: store.delete("a"),
    "delete many": lambda store: store.delete_many(["a", "b"]),
    "list": lambda store: store.list("a"),
    "head": lambda store: store.head("a"),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())

STORED = answer("200 OK", headers=['ETag: "tag"'])


def whole(body: bytes, *, length: int | None = None) -> Act:
    headers = ['ETag: "tag"', "Last-Modified: Wed, 21 Oct 2026 07:28:00 GMT"]
    return answer("200 OK", body, headers, length=length)


@asynccontextmanager
async def store_at(server_url: str, **changes: object) -> AsyncIterator[S3ObjectStore]:
    store = S3ObjectStore("bucket", "prefix", S3Endpoint(server_url, "id", "secret").settings(**changes))
    try:
        yield store
    finally:
        await store.aclose()


@every_call
@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Slow Down", "504 Gateway Timeout"])
async def test_a_5xx_is_unavailable_and_not_asked_again(call: Call, status: str) -> None:
    with MisbehavingServer(refusal(status, "SlowDown")) as server:
        async with store_at(server.url) as store:
            with pytest.raises(Unavailable):
                await call(store)
        assert len(server.requests) == 1


@every_call
async def test_a_reset_is_unavailable_and_not_asked_again(call: Call) -> None:
    with MisbehavingServer(reset) as server:
        async with store_at(server.url) as store:
            with pytest.raises(Unavailable):
                await call(store)
        assert len(server.requests) == 1


@every_call
async def test_a_kept_connection_that_breaks_is_not_asked_again_either(call: Call) -> None:
    with MisbehavingServer(STORED, reset) as server:
        async with store_at(server.url) as store:
            await store.put("first", b"")
            with pytest.raises(Unavailable):
                await call(store)
        assert len(server.requests) == 2


@pytest.mark.parametrize("call", [CALLS["create"], CALLS["get"]], ids=["create", "get"])
async def test_silence_is_unavailable_after_its_time(call: Call) -> None:
    with MisbehavingServer(STORED, silence) as server:
        async with store_at(server.url, request_s_max=3.0) as store:
            await store.put("first", b"")  # connecting takes time too, on a busy machine
            with pytest.raises(Unavailable, match="within 3 s"):
                await call(store)
        assert len(server.requests) == 2


@every_call
async def test_an_answer_that_is_not_http_is_unavailable(call: Call) -> None:
    with MisbehavingServer(raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")) as server:
        async with store_at(server.url) as store:
            with pytest.raises(Unavailable):
                await call(store)


@every_call
async def test_nobody_listening_is_unavailable(call: Call) -> None:
    async with store_at(f"http://127.0.0.1:{free_port()}") as store:
        with pytest.raises(Unavailable):
            await call(store)


@every_call
async def test_403_is_denied(call: Call) -> None:
    with MisbehavingServer(refusal("403 Forbidden", "AccessDenied")) as server:
        async with store_at(server.url) as store:
            with pytest.raises(Denied, match="credentials"):
                await call(store)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("409 Conflict", "ConditionalRequestConflict", Contended),
        ("412 Precondition Failed", "PreconditionFailed", Conflict),
        ("404 Not Found", "NoSuchBucket", Denied),
        ("400 Bad Request", "RequestTimeout", Unavailable),
        ("400 Bad Request", "BadDigest", Unavailable),
        ("400 Bad Request", "ExpiredToken", Denied),
        ("400 Bad Request", "InvalidArgument", Invalid),
        ("429 Too Many Requests", "TooManyRequests", Unavailable),
    ],
)
async def test_a_refused_create_is_reported_with_what_to_do(
    status: str, code: str, expected: type[TidelogError]
) -> None:
    with MisbehavingServer(refusal(status, code)) as server:
        async with store_at(server.url) as store:
            with pytest.raises(expected) as told:
                await store.create("a", b"")
        assert type(told.value) is expected
        assert len(server.requests) == 1


async def test_a_store_that_only_redirects_is_denied() -> None:
    with MisbehavingServer(refusal("301 Moved Permanently", "PermanentRedirect")) as server:
        async with store_at(server.url) as store:
            with pytest.raises(Denied, match="elsewhere"):
                await store.create("a", b"")


@pytest.mark.parametrize(
    "act",
    [
        whole(b"half", length=8),
        whole(b"", length=8),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: x\r\n\r\n4\r\nhalf\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nETag: x\r\n\r\nhow long was it meant to be?"),
    ],
    ids=["half", "none", "chunks without an end", "no length"],
)
async def test_a_truncated_body_is_never_taken_as_whole(act: Act) -> None:
    with MisbehavingServer(act) as server:
        async with store_at(server.url) as store:
            with pytest.raises(Unavailable):
                await store.get("a")
        assert len(server.requests) == 1


async def test_a_store_that_ignores_the_range_is_cut_here() -> None:
    with MisbehavingServer(whole(b"0123456789")) as server:
        async with store_at(server.url) as store:
            stored = await store.get("a", ByteRange(3, 4))
        assert (stored.data, stored.info.size) == (b"3456", 10)


async def test_a_create_sends_its_precondition_its_checksum_and_no_signature_of_the_body() -> None:
    body = bytes(range(256)) * (3 * SLICE_BYTES // 256) + b"tail"
    with MisbehavingServer(STORED) as server:
        async with store_at(server.url) as store:
            assert await store.create("a b/c", memoryview(body)) == '"tag"'
        (request,) = server.requests
    assert (request.method, request.target) == ("PUT", "/bucket/prefix/a%20b/c")
    assert request.body == body
    assert request.headers["if-none-match"] == "*"
    assert request.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert base64.b64decode(request.headers["x-amz-checksum-crc32"]) == zlib.crc32(body).to_bytes(4, "big")
    assert "transfer-encoding" not in request.headers


async def test_a_put_with_a_version_sends_it() -> None:
    with MisbehavingServer(STORED) as server:
        async with store_at(server.url) as store:
            await store.put("a", b"", if_version='"old"')
        assert server.requests[0].headers["if-match"] == '"old"'


async def test_at_an_endpoint_that_is_not_amazons_the_bucket_is_in_the_path() -> None:
    with MisbehavingServer(STORED) as server:
        async with store_at(server.url.replace("127.0.0.1", "localhost"), path_style=None) as store:
            await store.put("a", b"")
        assert server.requests[0].target == "/bucket/prefix/a"
        assert server.requests[0].headers["host"].startswith("localhost:")


async def test_a_body_damaged_on_its_way_is_refused_by_the_store(
    minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write_damaged(self: ViewPayload, writer: AbstractStreamWriter) -> None:
        await writer.write(b"?" * (self.size or 0))

    store = S3ObjectStore(minio_bucket.name, "", minio_bucket.endpoint.settings())
    with monkeypatch.context() as patch:
        patch.setattr(ViewPayload, "write", write_damaged)
        with pytest.raises(Unavailable):
            await store.create("a", b"as it should be")
    with pytest.raises(NotFound):
        await store.head("a")
    await store.aclose()


async def test_wrong_keys_and_no_bucket_are_denied_by_a_real_store(minio: S3Endpoint) -> None:
    store = S3ObjectStore("no-such-bucket", "", minio.settings())
    with pytest.raises(Denied, match="no such bucket"):
        await store.create("a", b"")
    await store.aclose()
    store = S3ObjectStore("no-such-bucket", "", minio.settings(secret_access_key="wrong"))
    with pytest.raises(Denied, match="credentials"):
        await store.create("a", b"")
    await store.aclose()


async def test_endpoint_region_and_keys_come_from_the_usual_settings(
    minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in minio_bucket.endpoint.environment().items():
        monkeypatch.setenv(name, value)
    store = S3ObjectStore(minio_bucket.name)
    await store.create("a", b"x")
    assert (await store.get("a")).data == b"x"
    await store.aclose()


async def test_no_keys_at_all_are_denied_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "no-such-file")
    monkeypatch.setenv("AWS_CONFIG_FILE", "no-such-file")
    async with store_at("http://127.0.0.1:9", access_key_id=None, secret_access_key=None) as store:
        with pytest.raises(Denied, match="AWS_ACCESS_KEY_ID"):
            await store.head("a")


def undeleted(*refusals: tuple[str, str]) -> Act:
    errors = "".join(
        f"<Error><Key>prefix/{key}</Key><Code>{code}</Code><Message>told</Message></Error>" for key, code in refusals
    )
    return answer("200 OK", f"<DeleteResult>{errors}</DeleteResult>".encode())


async def test_a_delete_of_many_is_one_request_with_both_hashes_of_its_body() -> None:
    with MisbehavingServer(undeleted()) as server:
        async with store_at(server.url) as store:
            await store.delete_many(["a", "b & <c>"])
        (request,) = server.requests
    assert (request.method, request.target.split("=")[0]) == ("POST", "/bucket?delete")
    assert b"<Key>prefix/a</Key>" in request.body
    assert b"<Key>prefix/b &amp; &lt;c&gt;</Key>" in request.body
    assert base64.b64decode(request.headers["content-md5"]) == hashlib.md5(request.body).digest()
    assert base64.b64decode(request.headers["x-amz-checksum-crc32"]) == zlib.crc32(request.body).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (undeleted(("a", "InternalError")), Unavailable),
        (undeleted(("a", "SlowDown")), Unavailable),
        (undeleted(("b", "SlowDown"), ("a", "AccessDenied")), Denied),
        (undeleted(("a", "InvalidArgument")), Invalid),
    ],
)
async def test_keys_that_were_not_deleted_are_an_error_that_names_one(act: Act, expected: type[TidelogError]) -> None:
    with MisbehavingServer(act) as server:
        async with store_at(server.url) as store:
            with pytest.raises(expected, match="prefix/a") as told:
                await store.delete_many(["a", "b", "c"])
        assert type(told.value) is expected
        assert len(server.requests) == 1


async def test_a_key_that_was_absent_when_many_were_deleted_is_no_error() -> None:
    with MisbehavingServer(undeleted(("a", "NoSuchKey"))) as server:
        async with store_at(server.url) as store:
            await store.delete_many(["a", "b"])


@pytest.mark.parametrize("lacks", ["501 NotImplemented", "405 MethodNotAllowed"])
async def test_a_server_without_deletes_of_many_gets_single_ones_and_is_asked_once(lacks: str) -> None:
    with MisbehavingServer(refusal(lacks, lacks.split()[1]), answer("204 No Content")) as server:
        async with store_at(server.url) as store:
            await store.delete_many(["a", "b"])
            await store.delete_many(["c"])
        assert [request.method for request in server.requests] == ["POST", "DELETE", "DELETE", "DELETE"]
        assert {request.target.split("?")[0] for request in server.requests[1:]} == {
            f"/bucket/prefix/{key}" for key in "abc"
        }


async def test_a_single_delete_that_fails_is_raised_after_all_were_tried() -> None:
    acts = refusal("501 NotImplemented", "NotImplemented"), refusal("403 Forbidden", "AccessDenied")
    with MisbehavingServer(*acts, answer("204 No Content")) as server:
        async with store_at(server.url) as store:
            with pytest.raises(Denied):
                await store.delete_many(["a", "b", "c"])
        assert len(server.requests) == 4
