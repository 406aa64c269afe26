"""Small requests that expand to large ones: the memory of a real broker's process, and the delay of other requests."""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.attempts import attempts, within
from tests.end_to_end.broker_process import BrokerProcess

MIB = 1 << 20
BODY_BYTES = 64 * MIB
"""The default of ``request.max.bytes``."""
ADDED_BYTES_MAX = {"nulls": 2 * BODY_BYTES, "zeros": 2 * BODY_BYTES, "headers": 3 * BODY_BYTES}
"""The expanded body, an eighth of it for its growth, and the memory for decoding: for a body of one record, a copy."""
WAIT_S_MAX = 0.8
"""Seconds for another request at the same time; it takes about 0.02 s."""

NULL, HEADER = b'{"value":null},', b'{"key":"a","value":null},'
BODIES = {
    "nulls": (b'{"records":[' + NULL * (BODY_BYTES // len(NULL) - 2))[:-1] + b"]}",
    "headers": (b'{"records":[{"value":null,"headers":[' + HEADER * (BODY_BYTES // len(HEADER) - 4))[:-1] + b"]}]}",
    "zeros": bytes(BODY_BYTES),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("hostile"), {"store": "memory:"}, forked=False)
    process.start()
    httpx.post(f"{process.url}/v1/topics", json={"name": "web"}, trust_env=False).raise_for_status()
    yield process
    process.stop()


@pytest.mark.parametrize("name", BODIES)
def test_a_small_request_that_expands_is_refused_within_the_memory_for_bodies(broker: BrokerProcess, name: str) -> None:
    packed = gzip.compress(BODIES[name], 6)
    assert len(packed) < 200_000
    for attempt in attempts():
        with attempt:
            _refused_beside_others(broker, packed, ADDED_BYTES_MAX[name])


def _refused_beside_others(broker: BrokerProcess, packed: bytes, added_bytes_max: int) -> None:
    """The broker refuses `packed`, within its memory, and answers other requests meanwhile."""
    kind = {"content-type": "application/json", "content-encoding": "gzip"}
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # the peak counts from here
    before_bytes = _memory(broker, "VmRSS")
    done, waits = threading.Event(), [0.0]
    watching = threading.Thread(target=_ask, args=(broker, done, waits))
    watching.start()
    try:
        answer = httpx.post(
            f"{broker.url}/v1/topics/web/records", content=packed, headers=kind, timeout=60, trust_env=False
        )
    finally:
        done.set()
        watching.join()
    assert answer.status_code in (400, 422), answer.text
    assert _memory(broker, "VmHWM") - before_bytes < added_bytes_max
    within(WAIT_S_MAX, max(waits), f"the slowest of {len(waits)} other requests")


def _memory(broker: BrokerProcess, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _ask(broker: BrokerProcess, done: threading.Event, waits: list[float]) -> None:
    """Send another request repeatedly, and record how long the answers take."""
    with httpx.Client(timeout=20, trust_env=False) as http:
        while not done.is_set():
            began_s = time.perf_counter()
            http.get(f"{broker.url}/healthz")
            waits.append(time.perf_counter() - began_s)
            done.wait(0.002)
