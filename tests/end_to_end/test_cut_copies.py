"""A copy with curl that a stopping broker cuts fails, and can continue exactly where it was cut."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import httpx
import pytest
from tests.end_to_end.broker_process import BrokerProcess

CURL = shutil.which("curl")
CUT_SHORT = 18
"""curl's exit code for an answer that ends too early."""
RECORDS = 60_000
VALUE = {"text": "x" * 480}
"""The copy is larger than the sockets' buffers."""


@pytest.mark.skipif(CURL is None, reason="needs curl")
def test_curl_fails_when_its_broker_stops_amid_a_copy_and_continues_from_the_position(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"store": f"file:{tmp_path / 'data'}", "num.partitions": 2})
    broker.start()
    try:
        _fill(broker)
        copy = _copy(broker)
        assert copy.stdout is not None
        first = copy.stdout.readline() + copy.stdout.readline()  # position, record; then the broker waits
        broker.terminate()
        position, seen = _read(first + copy.communicate()[0])
        assert copy.returncode == CUT_SHORT
        assert 0 < seen.total() < RECORDS
        assert broker.wait() == 0
        broker.start()
        rest = _copy(broker, position)
        _, seen_later = _read(rest.communicate()[0])
        assert rest.returncode == 0
    finally:
        broker.stop()
    assert (seen + seen_later).total() == RECORDS
    assert set((seen + seen_later).values()) == {1}


def _fill(broker: BrokerProcess) -> None:
    line = json.dumps(VALUE).encode() + b"\n"
    for partition in (0, 1):
        url = f"{broker.url}/v1/topics/web/partitions/{partition}/records"
        for _ in range(3):
            body, kind = line * (RECORDS // 6), {"content-type": "application/x-ndjson"}
            httpx.post(url, content=body, headers=kind, timeout=30, trust_env=False).raise_for_status()


def _copy(broker: BrokerProcess, position: str = "") -> subprocess.Popen[bytes]:
    assert CURL is not None
    url = f"{broker.url}/v1/topics/web/records?offset=earliest&wait_ms=0&positions=true"
    asked = ["-H", "accept: application/x-ndjson", *(["-H", f"last-event-id: {position}"] if position else [])]
    return subprocess.Popen([CURL, "-sS", "-N", "--noproxy", "*", *asked, url], stdout=subprocess.PIPE)


def _read(copy: bytes) -> tuple[str, Counter[tuple[int, int]]]:
    """The last position of a copy, and how often it has each record by partition and offset."""
    position, seen = "", Counter[tuple[int, int]]()
    for line in filter(None, copy.split(b"\n")):
        found = json.loads(line)
        if "offset" in found:
            seen[found["partition"], found["offset"]] += 1
        else:
            position = found["position"]
    return position, seen
