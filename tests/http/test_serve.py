"""`serve` as a process: its first line, its signals, its exit codes, and the state after it."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.end_to_end.forked_tidelog import ForkedTidelog
from tests.http.requests import EVENTS

STOP_S = 60
"""A broker that has not stopped by then hangs."""
PATH = "/v1/topics/web/partitions/0/records"


def start(store: str, port: int = 0, host: str = "127.0.0.1") -> ForkedTidelog:
    command = ["serve", "--store", store, "--port", str(port), "--host", host, "--shards", "2"]
    return ForkedTidelog(command, stderr=subprocess.PIPE)


def next_line(process: ForkedTidelog) -> dict[str, str]:
    line: dict[str, str] = json.loads(process.stderr.readline())
    return line


@contextmanager
def broker(store: str) -> Iterator[tuple[ForkedTidelog, str]]:
    """A broker process and its address."""
    process = start(store)
    try:
        yield process, next_line(process)["address"]
    finally:
        process.kill()
        process.communicate()


def produce(address: str, value: str, partition: int = 0) -> int:
    answer = httpx.post(f"{address}/v1/topics/web/partitions/{partition}/records", json={"records": [{"value": value}]})
    offset: int = answer.raise_for_status().json()["partitions"][0]["base_offset"]
    return offset


def values(address: str) -> list[str]:
    answer = httpx.get(f"{address}{PATH}").raise_for_status()
    return [record["value"] for record in answer.json()["records"]]


def test_the_first_line_says_where_with_what_and_which() -> None:
    process = start("memory:")
    line = next_line(process)
    process.kill()
    process.communicate()
    assert line["message"] == "listening"
    assert line["address"].startswith("http://127.0.0.1:")
    assert line["store"] == "memory:"
    assert line["version"]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_exit_code_0(stop: signal.Signals) -> None:
    with broker("memory:") as (process, address):
        produce(address, "x")
        process.send_signal(stop)
        assert process.wait(STOP_S) == 0
        assert [json.loads(line)["message"] for line in process.stderr] == ["stopping", "stopped"]


def test_streams_and_long_polls_do_not_hold_up_a_stop() -> None:
    with broker("memory:") as (process, address):
        produce(address, "x")
        polled: list[httpx.Response] = []
        url = f"{address}{PATH}"
        with httpx.stream("GET", url, headers={"accept": EVENTS}, timeout=STOP_S) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "id: 0"
            poll = threading.Thread(
                target=lambda: polled.append(httpx.get(f"{url}?offset=1&wait_ms=60000", timeout=STOP_S))
            )
            poll.start()
            while "tidelog_http_waiters 2" not in httpx.get(f"{address}/metrics").text:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S) == 0
            assert next(lines).startswith("data:")
        poll.join()
        assert polled[0].json()["records"] == []


@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_acknowledged_records_are_there_after_a_restart(tmp_path: Path, kill: signal.Signals) -> None:
    store = f"file:{tmp_path}"
    with broker(store) as (process, address):
        assert [produce(address, str(number)) for number in range(5)] == [0, 1, 2, 3, 4]
        process.send_signal(kill)
        process.wait(STOP_S)
    with broker(store) as (_, address):
        assert values(address) == ["0", "1", "2", "3", "4"]
        assert produce(address, "5") == 5


def test_a_stop_under_load_answers_what_it_took(tmp_path: Path) -> None:
    store = f"file:{tmp_path}"
    acknowledged: list[str] = []
    with broker(store) as (process, address):
        produce(address, "first")

        def go_on(name: str) -> None:
            """Produce until the broker accepts no more; no answer may be cut off."""
            with httpx.Client(base_url=address, timeout=STOP_S) as client:
                for number in itertools.count():
                    value = f"{name}-{number}"
                    try:
                        answer = client.post(PATH, json={"records": [{"value": value}]})
                    except httpx.TransportError:
                        return
                    if answer.status_code == 200:
                        acknowledged.append(value)

        producers = [threading.Thread(target=go_on, args=(name,)) for name in "abcd"]
        for producer in producers:
            producer.start()
        while len(acknowledged) < 20:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
        for producer in producers:
            producer.join()
    with broker(store) as (_, address):
        found = values(address)
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))


def test_a_port_in_use_is_reported_in_a_sentence_and_touches_no_store(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(f"file:{tmp_path / 'data'}", port)
        line = next_line(process)
        assert process.wait(STOP_S) == 1
        process.communicate()
    assert f"127.0.0.1:{port} is in use" in line["message"]
    assert not (tmp_path / "data").exists()


def test_a_host_that_is_not_of_this_machine_is_reported_in_a_sentence_and_touches_no_store(tmp_path: Path) -> None:
    process = start(f"file:{tmp_path / 'data'}", host="no-such-host.invalid")
    line = next_line(process)
    assert process.wait(STOP_S) == 1
    process.communicate()
    assert line["level"] == "error"
    assert "cannot listen on no-such-host.invalid" in line["message"]
    assert "cause" not in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("store", ["ftp://x", "nothing"])
def test_a_store_that_cannot_be_is_reported_in_a_sentence(store: str) -> None:
    process = start(store)
    line = next_line(process)
    assert process.wait(STOP_S) == 1
    process.communicate()
    assert line["level"] == "error"
    assert "cause" not in line


def test_an_address_that_cannot_be_listened_on_is_reported_in_a_sentence() -> None:
    process = start("memory:", host="192.0.2.1")
    line = next_line(process)
    assert process.wait(STOP_S) == 1
    process.communicate()
    assert "cannot listen on 192.0.2.1" in line["message"]
