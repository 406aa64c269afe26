"""docs/http-api.md lists every error code with its status, and every call."""

from __future__ import annotations

import re
from pathlib import Path

from tests.http.conftest import SETTINGS

from tidelog.services.http.app import create_app
from tidelog.services.runtime.wiring import open_broker
from tidelog.storage.runtime import Runtime
from tidelog.wire.errors import ERRORS, INTERNAL

PAGE = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text()
NOT_SENT = {"client_gone"}
"""No client gets it."""


def test_every_error_code_is_listed_with_its_status() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ([^|]+)\|", PAGE, re.MULTILINE)
    listed = {(int(status), code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    for row in (*ERRORS, INTERNAL):
        if row.code not in NOT_SENT:
            assert (row.status, row.code) in listed


def test_every_call_is_described() -> None:
    paths = create_app(open_broker(SETTINGS, Runtime()), SETTINGS, Runtime()).openapi()["paths"]
    page = PAGE.replace("{id}", "{broker}").replace("{p}", "{partition}").replace("?at=…", "")
    for path, calls in paths.items():
        for method in calls:
            assert f"`{method.upper()} {path}`" in page, f"{method} {path}"
