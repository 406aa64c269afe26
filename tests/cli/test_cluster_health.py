"""`tidelog cluster health` says how producers are slowed while too much is not archived, until archiving goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
import yaml
from infra.alert_rules import ALERTS
from tests.broker.gated_store import GatedObjectStore
from tests.end_to_end.broker_process import run_tidelog, wait_until
from tests.http.conftest import SETTINGS
from tests.http.running_server import RunningServer
from tests.infra.exported import parsed
from tests.infra.promql import unknown

from tidelog.storage.layout import MANIFESTS_PREFIX
from tidelog.storage.stores.memory import MemoryObjectStore

WAIT_S = 20.0
NOISE = random.Random(1)
BODY = {"records": [{"value": NOISE.randbytes(9_000).hex()} for _ in range(16)]}
OF_THE_BRAKE = ("TidelogArchiveBehind", "TidelogProducersSlowed")


@pytest.fixture
def gated() -> GatedObjectStore:
    """A store that takes no version of a manifest, so that nothing is archived, until its gate is set."""
    store = GatedObjectStore(MemoryObjectStore())
    store.hold(MANIFESTS_PREFIX)
    return store


@pytest.fixture
def server(gated: GatedObjectStore) -> Iterator[RunningServer]:
    settings = replace(SETTINGS, shards=1, archiver_debt_max_bytes=1 << 20, archiver_interval_ms=10)
    with RunningServer(settings, gated) as running:
        yield running
        running.call(gated.gate.set)


def test_health_says_that_producers_are_slowed_and_by_what(server: RunningServer, gated: GatedObjectStore) -> None:
    assert health(server) == ""
    produce_until(server, 200, "produces are delayed")
    produce_until(server, 503, "produces are refused")
    described = run_tidelog(("cluster", "info"), broker=server.url).stdout.decode()
    assert "archiver.debt.max.bytes" in next(line for line in described.splitlines() if line.startswith("limited"))
    metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
    assert "tidelog_produce_brake 1.0" in metrics
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    expressions = [rule["expr"] for rule in rules if rule["alert"] in OF_THE_BRAKE]
    assert len(expressions) == len(OF_THE_BRAKE)
    assert [unknown(expression, parsed(metrics)) for expression in expressions] == [[], []]
    server.call(gated.gate.set)
    wait_until(lambda: health(server) == "", WAIT_S, lambda: health(server))
    assert produce(server) == 200


def produce(server: RunningServer) -> int:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=WAIT_S) as client:
        client.post("/v1/topics", json={"name": "t", "partitions": 1})
        return client.post("/v1/topics/t/records", json=BODY).status_code


def produce_until(server: RunningServer, status: int, line: str) -> None:
    """Produce until a produce gets `status` and `cluster health` says `line`."""
    while produce(server) != status or line not in httpx.get(f"{server.url}/readyz", trust_env=False).text:
        pass
    said = health(server)
    assert line in said
    assert "(archiver.debt.max.bytes) of the write-ahead log are not archived yet" in said


def health(server: RunningServer) -> str:
    """The warnings that `cluster health` prints."""
    done = run_tidelog(("cluster", "health"), broker=server.url)
    assert (done.returncode, done.stdout.decode()) == (0, f"{server.url} is ready\n"), "readers are served"
    return done.stderr.decode()
