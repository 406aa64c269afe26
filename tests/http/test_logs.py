"""Structured logs: JSON lines for programs, text for people, and failures with their cause."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from tests.http.requests import problem

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.runtime.logs import configure_logs
from tidelog.storage.errors import Corrupt


@pytest.fixture(autouse=True)
def _root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(log_format: str, level: str = "info") -> str:
    """The output for one info line, one line with a cause, and one line below the level."""
    out = io.StringIO()
    configure_logs(level, log_format, out)
    logger = logging.getLogger("tidelog.test")
    logger.info("listening", extra={"fields": {"address": "http://x", "port": 1, "odd": 1j}})
    try:
        raise ValueError("the cause")
    except ValueError:
        logger.exception("a request failed: %s", "why\nand how")
    logger.debug("too small to tell")
    return out.getvalue()


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_json_lines_are_one_object_each(log_format: str) -> None:
    first, second = (json.loads(line) for line in logged(log_format).splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "info",
        "logger": "tidelog.test",
        "message": "listening",
        "address": "http://x",
        "port": 1,
        "odd": "1j",
    }
    assert second["message"] == "a request failed: why\nand how"
    assert "ValueError: the cause" in second["cause"]


def test_text_is_for_people() -> None:
    first, *rest = logged("text").splitlines()
    assert first.endswith("info    listening  address=http://x  port=1  odd=1j")
    assert rest[-1] == "ValueError: the cause"


def test_the_level_bounds_what_is_logged() -> None:
    assert "listening" not in logged("json", "error")


async def test_a_fault_is_logged_with_its_cause_but_not_sent_to_the_client(
    app: FastAPI, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("a secret of the broker")

    monkeypatch.setattr(broker, "status", broken)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/v1/cluster")
    assert "secret" not in problem(answer, 500, "internal")["detail"]
    assert [record.name for record in caplog.records if record.exc_info] == ["tidelog.services.http.answers.problems"]
    assert "a secret of the broker" in caplog.text


async def test_a_damaged_object_is_named_to_the_client_and_in_the_log(
    client: httpx.AsyncClient,
    broker: LocalBroker,
    web: dict[int, int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def damaged(*_: object) -> None:
        raise Corrupt("wal/0000/00000000000000000001.parquet", "is cut off")

    monkeypatch.setattr(broker, "fetch", damaged)
    answer = await client.get("/v1/topics/web/partitions/0/records")
    assert problem(answer, 500, "corrupt")["object"] == "wal/0000/00000000000000000001.parquet"
    assert "is cut off" in caplog.text
