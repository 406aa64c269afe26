"""A front door is a folder and a line of wiring: `line_door` beside HTTP, in one broker process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx

PROGRAM = """
import sys
from tests.doors.line_door import LineDoor
from tidelog.services.runtime import serving
from tidelog.services.settings.settings import Settings
http = serving.front_doors
serving.front_doors = lambda runtime, settings: (*http(runtime, settings), LineDoor())
sys.exit(serving.serve(Settings(store=sys.argv[1], port=0, listeners="none", log_format="json")))
"""


def addresses(process: subprocess.Popen[str]) -> list[str]:
    """Where the doors listen, in the order of their wiring."""
    assert process.stderr
    lines = (json.loads(line) for line in process.stderr)
    listening = (line["address"] for line in lines if line.get("message") == "listening")
    return [next(listening), next(listening)]


def test_two_doors_of_one_process_share_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, f"file:{tmp_path}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        http, tcp = addresses(process)
        host, _, port = tcp.removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as line, line.makefile("rw") as wire:

            def asked(request: str) -> str:
                print(request, file=wire, flush=True)
                return wire.readline().rstrip()

            assert asked("PUT web 0 by-lines") == "0"
            records = f"{http}/v1/topics/web/partitions/0/records"
            assert httpx.get(records).json()["records"][0]["value"] == "by-lines"
            assert (
                httpx.post(records, json={"records": [{"value": "by-http"}]}).json()["partitions"][0]["base_offset"]
                == 1
            )
            assert asked("GET web 0 1") == "by-http"
            assert asked("GET absent 0 0").startswith("ERROR "), "a refusal is the broker's own"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
