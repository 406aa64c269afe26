"""The compose file's HAProxy in front of real brokers. Each broker has its own log here, so a test sees which one
answered."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from tests.components.required import require_component
from tests.end_to_end.broker_process import BrokerProcess, wait_until
from tests.http.running_server import RunningServer
from tests.infra.balancer import FILE, SILENCE, Balancer

from tidelog.services.http.v1 import follow_routes
from tidelog.services.http.v1.fetch_routes import HEARTBEAT_MS
from tidelog.services.settings.settings import Settings

FOLLOW = {"accept": "text/event-stream"}
LINES = {"accept": "application/x-ndjson"}
SEEN_S_MAX = 15.0
NOT_KEPT = httpx.Limits(max_keepalive_connections=0)
"""Each request uses a new connection, like another client."""


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20, trust_env=False, limits=NOT_KEPT) as client:
        yield client


@pytest.fixture(scope="module")
def program() -> Path:
    return require_component("haproxy")


@pytest.fixture(scope="module")
def processes(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[BrokerProcess]]:
    folder = tmp_path_factory.mktemp("brokers")
    started = [BrokerProcess(folder, {"store": "memory:"}) for _ in range(3)]
    yield started
    for broker in started:
        broker.stop()


@pytest.fixture
def brokers(processes: Sequence[BrokerProcess]) -> Sequence[BrokerProcess]:
    """Three ready brokers; brokers that the previous test stopped are started again."""
    for broker in processes:
        if not broker.ready():
            broker.start()
    return processes


@pytest.fixture
def balancer(program: Path, tmp_path: Path, brokers: Sequence[BrokerProcess]) -> Iterator[Balancer]:
    with Balancer(program, tmp_path, [broker.port for broker in brokers]) as running:
        yield running


def test_its_file_is_valid_but_for_the_names_that_only_compose_knows(program: Path) -> None:
    done = subprocess.run([program, "-c", "-f", FILE], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "[ALERT]" in line or "[WARNING]" in line]
    assert done.returncode == 0, done.stderr
    assert [line for line in complaints if "could not resolve address 'broker-" not in line] == []


def test_requests_go_to_all_and_a_broker_that_is_killed_costs_no_reader_an_error(
    http: httpx.Client, balancer: Balancer, brokers: Sequence[BrokerProcess]
) -> None:
    for number, broker in enumerate(brokers):
        _create(http, broker, f"mark-{number}")
    assert _who_answer(http, balancer, 30) == {0, 1, 2}
    brokers[1].kill()
    assert _who_answer(http, balancer, 60) == {0, 2}
    brokers[1].start()
    _create(http, brokers[1], "mark-1")
    wait_until(lambda: 1 in _who_answer(http, balancer, 10), SEEN_S_MAX, lambda: "broker 1 is not asked again")


def _who_answer(http: httpx.Client, balancer: Balancer, count: int) -> set[int]:
    """Identify brokers by the topics they know; each request must be answered."""
    found = set()
    for _ in range(count):
        answer = http.get(f"{balancer.url}/v1/topics")
        assert answer.status_code == 200
        names = [topic["name"] for topic in answer.json()["topics"]]
        found |= {int(name.removeprefix("mark-")) for name in names if name.startswith("mark-")}
    return found


def test_a_broker_that_stops_is_not_asked_any_more_and_its_requests_are_answered(
    http: httpx.Client, balancer: Balancer, brokers: Sequence[BrokerProcess]
) -> None:
    brokers[0].terminate()
    for _ in range(60):
        assert http.get(f"{balancer.url}/healthz").status_code == 200
    assert brokers[0].wait() == 0


def test_events_come_through_one_by_one(
    http: httpx.Client, balancer: Balancer, brokers: Sequence[BrokerProcess]
) -> None:
    for number, broker in enumerate(brokers):
        _create(http, broker, "followed")
        _send(http, broker, f"of {number}")
    url = f"{balancer.url}/v1/topics/followed/records?offset=earliest"
    with http.stream("GET", url, headers=FOLLOW) as stream:
        lines = stream.iter_lines()
        first = next(line for line in lines if line.startswith("data:"))
        (sender,) = [number for number in range(3) if f"of {number}" in first]
        _send(http, brokers[sender], "later")
        assert "later" in next(line for line in lines if line.startswith("data:"))


def test_an_idle_follow_is_not_cut(
    http: httpx.Client, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both times are scaled down: the broker sends a heartbeat within a fifth of the silence that the balancer
    allows."""
    silence_s = float(SILENCE.removesuffix("s"))
    assert f"timeout client {SILENCE}" in FILE.read_text()
    assert f"timeout server {SILENCE}" in FILE.read_text()
    assert silence_s / 5 >= HEARTBEAT_MS / 1000
    monkeypatch.setattr(follow_routes, "HEARTBEAT_MS", 200)
    with RunningServer(Settings(store="memory:")) as server:
        port = int(server.url.rpartition(":")[2])
        http.post(f"{server.url}/v1/topics", json={"name": "idle"}).raise_for_status()
        with (
            Balancer(program, tmp_path, [port] * 3, silence="1s") as balancer,
            http.stream("GET", f"{balancer.url}/v1/topics/idle/records", headers=LINES) as stream,
        ):
            beats = stream.iter_lines()
            assert [next(beats) for _ in range(12)] == [""] * 12
            http.post(f"{server.url}/v1/topics/idle/records", json={"records": [{"value": "v"}]}).raise_for_status()
            assert '"value":"v"' in next(line for line in beats if line)


def test_without_any_broker_it_says_503_and_is_not_healthy(
    http: httpx.Client, balancer: Balancer, brokers: Sequence[BrokerProcess]
) -> None:
    for broker in brokers:
        broker.kill()
    wait_until(lambda: balancer.health() == 503, SEEN_S_MAX, lambda: "the balancer still thinks that somebody is there")
    assert http.get(f"{balancer.url}/readyz").status_code == 503


def _create(http: httpx.Client, broker: BrokerProcess, name: str) -> None:
    http.post(f"{broker.url}/v1/topics", json={"name": name}).raise_for_status()


def _send(http: httpx.Client, broker: BrokerProcess, value: str) -> None:
    body = {"records": [{"value": value}]}
    http.post(f"{broker.url}/v1/topics/followed/records", json=body).raise_for_status()
