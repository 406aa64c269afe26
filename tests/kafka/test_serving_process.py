"""`tidelog serve` with listeners: a process from its start to SIGTERM."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.kafka.kio_client import KioClient
from tests.kafka.test_topics import creation, metadata_request

from tidelog.services.settings.listeners import parse_listeners

PROGRAM = "import sys; from tidelog.services.cli.main import main; sys.exit(main())"


@dataclass(frozen=True)
class Serving:
    """A broker process. `http` and `listeners`: its addresses."""

    process: subprocess.Popen[str]
    http: str
    listeners: str

    def port(self, name: str) -> int:
        return {each.name: each.port for each in parse_listeners("listeners", self.listeners)}[name]


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Serving]:
    command = [sys.executable, "-c", PROGRAM, "serve", "--store", f"file:{folder}", "--port", "0"]
    options = ["--log-format", "json", "--shutdown-timeout-ms", "4s", *flags]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        told = (json.loads(line) for line in process.stderr)
        addresses = (line["address"] for line in told if line.get("message") == "listening")
        yield Serving(process, next(addresses), next(addresses))
        if process.poll() is None:
            process.kill()


async def test_a_process_tells_where_it_listens_counts_requests_and_stops(tmp_path: Path) -> None:
    names = "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
    flags = ("--listeners", names, "--advertised-listeners", "OUTSIDE://kafka.example:19092")
    with serving(tmp_path, *flags) as broker:
        inside = await KioClient.connect("127.0.0.1", broker.port("PLAINTEXT"))
        outside = await KioClient.connect("127.0.0.1", broker.port("OUTSIDE"))
        for _ in range(2):
            await inside.ask(creation(7, "events"))
        (told,) = (await inside.ask(metadata_request(12, []))).brokers
        assert (told.host, told.port) == ("127.0.0.1", broker.port("PLAINTEXT"))
        (told,) = (await outside.ask(metadata_request(12, []))).brokers
        assert (told.host, told.port) == ("kafka.example", 19092), "each listener has its own addresses"
        async with httpx.AsyncClient(base_url=broker.http) as http:
            assert (await http.get("/v1/topics/events")).status_code == 200
            metrics = (await http.get("/metrics")).text
        assert "tidelog_kafka_connections 2.0" in metrics
        assert 'tidelog_kafka_requests_total{api="Metadata",version="12"} 2.0' in metrics
        assert 'tidelog_kafka_errors_total{api="CreateTopics",code="TOPIC_ALREADY_EXISTS"} 1.0' in metrics
        broker.process.send_signal(signal.SIGTERM)
        assert await inside.is_ended()
        assert await outside.is_ended()
        assert await asyncio.to_thread(broker.process.wait, 20) == 0
        await inside.aclose()
        await outside.aclose()


def test_a_process_without_listeners_serves_http_where_the_default_port_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = f"from tidelog.services.settings import listeners; listeners.DEFAULT_PORT = {port}; {PROGRAM}"
        command = [sys.executable, "-c", program, "serve", "--store", f"file:{tmp_path}", "--port", "0"]
        options = ["--log-format", "json", "--listeners", "auto"]
        with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            warning, listening = (json.loads(process.stderr.readline()) for _ in range(2))
            assert f"127.0.0.1:{port} is in use by another process" in warning["message"]
            assert warning["level"] == "warning"
            assert httpx.get(f"{listening['address']}/readyz").status_code == 200
            process.send_signal(signal.SIGTERM)
            lines = [json.loads(line)["message"] for line in process.stderr]
        assert lines == ["stopping", "stopped"]
