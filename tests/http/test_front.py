"""Requests that the front refuses before any route sees them: names with slashes, foreign hosts and pages, forms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from tests.http.conftest import SETTINGS
from tests.http.requests import JSON, NDJSON, TEXT, offsets_of, problem

from tidelog.services.http.app import create_app
from tidelog.services.http.front.host_check import host_name
from tidelog.services.http.front.request_context import ID_CHARACTERS_MAX
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Runtime

RECORDS = "/v1/topics/web/partitions/0/records"
EVIL = "http://evil.example"
PAGE = "https://console.example.com"
CLUSTER = "/v1/cluster"


@pytest.fixture
def settings() -> Settings:
    return replace(
        SETTINGS,
        advertised_address="http://broker-7.lan:8080",
        http_hosts_allowed="log.example.com, *.svc.cluster.local",
        http_origins_allowed=PAGE,
    )


@pytest.fixture
async def raw(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Sends a path as given, with its escapes."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        yield http


# ---- path


@pytest.mark.parametrize("slash", ["%2F", "%2f"])
async def test_an_encoded_slash_in_a_name_reaches_no_other_topic(
    raw: httpx.AsyncClient, web: dict[int, int], slash: str
) -> None:
    path = f"/v1/topics/web{slash}partitions{slash}0/records"
    body = {"records": [{"value": "x"}]}
    for answer in (await raw.post(path, json=body), await raw.get(path), await raw.delete(f"/v1/topics/x{slash}web")):
        assert "encoded slash" in problem(answer, 400, "invalid")["detail"]
    assert await offsets_of(raw, "web") == web


async def test_other_escapes_are_undone_in_their_own_segment(raw: httpx.AsyncClient, web: dict[int, int]) -> None:
    assert (await raw.get("/v1/topics/%77eb/partitions/0/records")).json()["topic"] == "web"
    problem(await raw.get("/v1/topics/web%252Fx"), 422, "invalid")
    problem(await raw.get("/v1/topics/%2e%2e"), 422, "invalid")


# ---- Host


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8080",
        "localhost",
        "LOCALHOST:8080",
        "[::1]:8080",
        "[fd00::1]",
        "10.1.2.3",
        "broker-7.lan:8080",
        "log.example.com.",
        "tidelog.main.svc.cluster.local:8080",
    ],
)
async def test_a_host_that_is_this_brokers_is_answered(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get(CLUSTER, headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "svc.cluster.local", "127.0.0.1.evil.example", ""]
)
async def test_a_host_of_another_name_is_refused(client: httpx.AsyncClient, web: dict[int, int], host: str) -> None:
    """DNS rebinding: the browser believes that the page and the broker are one origin."""
    headers = {"host": host, "origin": f"http://{host}"}
    problem(await client.get(CLUSTER, headers=headers), 403, "host_not_allowed")
    body = {"records": [{"value": "x"}]}
    problem(await client.post(RECORDS, json=body, headers=headers), 403, "host_not_allowed")
    assert await offsets_of(client, "web") == web


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_probe_may_use_any_host(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path, headers={"host": "some-balancer"})).status_code == 200


async def test_a_star_switches_the_check_off() -> None:
    settings = replace(SETTINGS, http_hosts_allowed="*")
    app = create_app(open_broker(settings, Runtime()), settings, Runtime())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://any.name") as http:
        assert (await http.get(CLUSTER)).status_code == 200


@pytest.mark.parametrize(
    ("authority", "name"), [("A.b:1", "a.b"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("a.", "a"), (":80", "")]
)
def test_the_name_in_a_host(authority: str, name: str) -> None:
    assert host_name(authority) == name


# ---- Origin


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://localhost:3000", "file://", "https://console.example.com.evil"]
)
async def test_a_page_of_another_origin_neither_changes_nor_reads(
    client: httpx.AsyncClient, web: dict[int, int], origin: str
) -> None:
    headers = {"origin": origin}
    for media, content in ((JSON, b'{"records":[{"value":"x"}]}'), (NDJSON, b"1\n"), (TEXT, b"x\n")):
        answer = await client.post(RECORDS, content=content, headers={**headers, "content-type": media})
        problem(answer, 403, "origin_not_allowed")
        assert "access-control-allow-origin" not in answer.headers
    problem(await client.post("/v1/topics", json={"name": "new"}, headers=headers), 403, "origin_not_allowed")
    problem(await client.delete("/v1/topics/web", headers=headers), 403, "origin_not_allowed")
    problem(await client.get(RECORDS, headers=headers), 403, "origin_not_allowed")
    asking = {**headers, "access-control-request-method": "POST"}
    problem(await client.options(RECORDS, headers=asking), 403, "origin_not_allowed")
    assert await offsets_of(client, "web") == web


@pytest.mark.parametrize(
    ("host", "origin"),
    [("localhost:8080", "http://localhost:8080"), ("log.example.com", "https://log.example.com")],
)
async def test_a_page_of_the_brokers_own_is_answered_without_cors(
    client: httpx.AsyncClient, web: dict[int, int], host: str, origin: str
) -> None:
    body = {"records": [{"value": "x"}]}
    answer = await client.post(RECORDS, json=body, headers={"host": host, "origin": origin})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_a_page_of_an_allowed_origin_is_asked_first_and_may_read(
    client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    headers = {"origin": PAGE}
    asking = {**headers, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    preflight = await client.options(RECORDS, headers=asking)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "Content-Type" in preflight.headers["access-control-allow-headers"]
    produced = await client.post(RECORDS, json={"records": [{"value": "x"}]}, headers=headers)
    assert produced.status_code == 200
    refused = await client.get("/v1/topics/none", headers=headers)
    for answer in (produced, refused):
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["vary"] == "Origin"


async def test_a_request_of_another_site_without_an_origin_is_refused_unless_a_user_follows_a_link(
    client: httpx.AsyncClient,
) -> None:
    cross = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    problem(await client.get(CLUSTER, headers=cross), 403, "origin_not_allowed")
    assert (await client.get("/docs", headers={**cross, "sec-fetch-mode": "navigate"})).status_code == 200
    assert (await client.get(CLUSTER, headers={"sec-fetch-site": "same-origin"})).status_code == 200


@pytest.mark.parametrize("origin", ["*", "console.example.com", "https://console.example.com/", "https://"])
def test_a_setting_that_is_not_an_origin_is_refused_at_the_start(origin: str) -> None:
    settings = replace(SETTINGS, http_origins_allowed=origin)
    with pytest.raises(Invalid) as refusal:
        create_app(open_broker(settings, Runtime()), settings, Runtime())
    assert refusal.value.field == "http.origins.allowed"


# ---- content type


@pytest.mark.parametrize(
    "path", ["/v1/topics", RECORDS, "/v1/cluster/brokers/a/drain", f"{RECORDS[:-7]}delete-records"]
)
@pytest.mark.parametrize(
    "media", [None, "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "Multipart/Form-Data"]
)
async def test_requests_that_a_form_can_send_change_nothing(
    client: httpx.AsyncClient, web: dict[int, int], path: str, media: str | None
) -> None:
    headers = {"content-type": media} if media else {}
    problem(await client.post(path, content=b'{"name":"new"}', headers=headers), 415, "unsupported_media_type")
    assert await offsets_of(client, "web") == web


async def test_a_drain_without_a_body_needs_a_content_type_too(client: httpx.AsyncClient) -> None:
    drain = "/v1/cluster/brokers/a/drain"
    problem(await client.post(drain), 415, "unsupported_media_type")
    problem(await client.post(drain, headers={"content-type": TEXT}), 415, "unsupported_media_type")
    problem(await client.post(drain, headers={"content-type": JSON}), 422, "invalid")  # reached: a single broker


async def test_lines_of_text_are_for_programs_and_not_for_browsers(
    client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    text = {"content-type": f"{TEXT}; charset=utf-8"}
    assert (await client.post(RECORDS, content=b"one\n", headers=text)).status_code == 200
    for browser in ({"origin": "http://localhost"}, {"origin": PAGE}, {"sec-fetch-site": "same-origin"}):
        answer = await client.post(RECORDS, content=b"two\n", headers={**text, **browser})
        problem(answer, 415, "unsupported_media_type")


# ---- request ids


@pytest.mark.parametrize("given", ["a", "abc-7/~", "x" * ID_CHARACTERS_MAX])
async def test_a_sane_request_id_is_kept(client: httpx.AsyncClient, given: str) -> None:
    answer = await client.get("/v1/topics/none", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == given
    assert answer.json()["request_id"] == given


@pytest.mark.parametrize("given", ["", "two words", "x" * (ID_CHARACTERS_MAX + 1), "é"])
async def test_another_is_replaced(client: httpx.AsyncClient, given: str) -> None:
    first, second = [await client.get(CLUSTER, headers={b"x-request-id": given.encode("latin-1")}) for _ in range(2)]
    assert first.headers["x-request-id"] not in (given, second.headers["x-request-id"])
    assert first.headers["x-request-id"].isascii()


async def test_a_refusal_of_the_front_has_a_request_id(client: httpx.AsyncClient) -> None:
    answer = await client.get(CLUSTER, headers={"origin": EVIL})
    assert problem(answer, 403, "origin_not_allowed")["request_id"] == answer.headers["x-request-id"]


async def test_an_answer_over_a_socket_has_one_date(live: httpx.AsyncClient) -> None:
    assert len((await live.get("/healthz")).headers.get_list("date")) == 1
