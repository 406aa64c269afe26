"""The compose file's load balancer as a process, with its own configuration except for the addresses."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from infra.loopback_ports import free_port
from tests.end_to_end.broker_process import wait_until
from tests.infra.compose_file import ROOT

FILE = ROOT / "infra/balancer/haproxy.cfg"
READY_S_MAX = 15.0
SILENCE = "75s"
"""How long a client or a broker may be silent, by the file."""
_OUTSIDE = re.compile(r" *(log stdout .*|log global|resolvers names|parse-resolv-conf|hold valid .*)")
"""Lines about things that containers have and a test has not: a log collector, a name server."""


class Balancer:
    """HAProxy in front of brokers on `ports`, between `__enter__` and `__exit__`. It cuts connections that are silent
    for `silence`."""

    def __init__(self, program: Path, folder: Path, ports: Sequence[int], silence: str = SILENCE) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.health_url = f"http://127.0.0.1:{free_port()}"
        self._program = program
        self._file = folder / "haproxy.cfg"
        self._log = folder / "haproxy.log"
        self._file.write_text(self._localized(ports).replace(SILENCE, silence))

    def _localized(self, ports: Sequence[int]) -> str:
        lines = [line for line in FILE.read_text().splitlines() if not _OUTSIDE.fullmatch(line)]
        text = "\n".join(lines).replace(" resolvers names init-addr last,libc,none", "") + "\n"
        for number, port in enumerate(ports, start=1):
            text = text.replace(f"broker-{number}:8080", f"127.0.0.1:{port}")
        text = text.replace("bind :8080", f"bind {self.url.removeprefix('http://')}")
        return text.replace("bind :8404", f"bind {self.health_url.removeprefix('http://')}")

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            command = [self._program, "-db", "-f", self._file]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        wait_until(self.ready, READY_S_MAX, self._log.read_text, still=lambda: self._process.poll() is None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(10)

    def ready(self) -> bool:
        """Whether the health check of the compose file would pass."""
        return self.health() == 200

    def health(self) -> int:
        """The status of the health page; 0 without an answer."""
        try:
            return httpx.get(f"{self.health_url}/readyz", timeout=5, trust_env=False).status_code
        except httpx.TransportError:
            return 0
