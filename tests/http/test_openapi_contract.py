"""schemathesis reads `/openapi.json` and sends requests that it allows and forbids: every answer is one that the
description names, and none is a 5xx (inv. 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CheckContext, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from tests.http.conftest import SETTINGS
from tests.http.requests import ARROW, JSON, NDJSON
from tests.http.running_server import RunningServer

from tidelog.coordinator.topics.topic import PARTITIONS_MAX
from tidelog.services.http.app import create_app
from tidelog.services.runtime.wiring import open_broker
from tidelog.storage.runtime import Runtime

EXAMPLES = 20


def method_not_allowed(context: CheckContext, response: schemathesis.Response, case: schemathesis.Case) -> bool | None:
    """A method that is not described gets 405; a POST without a content type is refused before its path is checked."""
    if case.method == "POST" and response.status_code == 415:
        return None
    return unsupported_method(context, response, case)


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    method_not_allowed,
]


@pytest.fixture(scope="module")
def broker_url() -> Iterator[str]:
    """One broker for all cases: a case must not disturb the next."""
    with RunningServer(replace(SETTINGS, fetch_max_wait_ms=20)) as running:
        httpx.post(f"{running.url}/v1/topics", json={"name": "web", "partitions": 2}).raise_for_status()
        yield running.url


def description() -> schemathesis.schemas.BaseSchema:
    """The application's own description; its broker is never started."""
    app = create_app(open_broker(SETTINGS, Runtime()), SETTINGS, Runtime())
    return schemathesis.openapi.from_dict(app.openapi())


@schemathesis.serializer(ARROW, NDJSON)
def as_bytes(_context: object, value: object) -> bytes:
    """Bodies that the description declares as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


schema = description()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
def test_every_answer_is_one_that_the_description_names(case: schemathesis.Case, broker_url: str) -> None:
    lines = case.method == "POST" and case.path.endswith("/records")
    if case.method == "GET":
        _end(case)
    _keep_small(case)
    checks = [check for check in CHECKS if not (lines and check is negative_data_rejection)]  # any text is a record
    case.call_and_validate(base_url=broker_url, checks=checks)


def _keep_small(case: schemathesis.Case) -> None:
    """Allowed partition counts so large that describing them takes longer than a test should."""
    partitions = case.body.get("partitions") if isinstance(case.body, dict) else None
    if isinstance(partitions, int) and 16 < partitions <= PARTITIONS_MAX:
        case.body["partitions"] = 16


def _end(case: schemathesis.Case) -> None:
    """Ask for an answer that ends, which an event stream does not."""
    if case.path == "/v1/topics/{topic}/records":
        case.headers["accept"] = NDJSON
        case.query.setdefault("wait_ms", 0)
    elif case.path.endswith("/records"):
        case.headers["accept"] = JSON
