"""The real `tidelog serve` in a process of its own: started, stopped, killed and started again on the same port.

broker = BrokerProcess(tmp_path, {"store": f"file:{tmp_path / 'data'}"})
broker.start()
...
broker.kill()        # -9
broker.start()       # the same log, the same URL
assert broker.stop() == 0
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx
from infra.loopback_ports import free_port
from tests.end_to_end.forked_tidelog import ForkedTidelog, run_forked

START_S_MAX = 30.0
STOP_S_MAX = 15.0
POLL_S = 0.02
TIDELOG = (sys.executable, "-c", "import sys; from tidelog.services.cli.main import main; sys.exit(main())")


class BrokerProcess:
    """`settings` with their dotted names; `environment` is added to that of the tests. `forked`: in a fork of a process
    that has imported the broker (`fork_server`), which saves more than a second of processor time per start. Tests of
    memory need a process of its own."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object],
        environment: Mapping[str, str] | None = None,
        *,
        forked: bool = True,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = {"port": self.port, "log.format": "json", **settings}
        self._environment = {**os.environ, **(environment or {})}
        self._log = folder / f"broker-{self.port}.log"
        self._forked = forked
        self._process: subprocess.Popen[bytes] | ForkedTidelog | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and return when it accepts requests."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start, without waiting."""
        flags = [text for name, value in self._settings.items() for text in (f"--{name.replace('.', '-')}", str(value))]
        with self._log.open("ab") as log:
            if self._forked:
                self._process = ForkedTidelog(["serve", *flags], stdout=log, stderr=log, env=self._environment)
                return
            self._process = subprocess.Popen(
                [*TIDELOG, "serve", *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def await_ready(self) -> None:
        """Wait until it accepts requests."""
        wait_until(self.ready, START_S_MAX, self.log, still=self.is_running)

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = STOP_S_MAX) -> int:
        """Wait for the end; return the exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code. Does nothing if it has already ended."""
        if self._process is None:
            return 0
        if self.is_running():
            self.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def log(self) -> str:
        """The log of all its lives."""
        return self._log.read_text() if self._log.exists() else ""

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


def start_together(brokers: Sequence[BrokerProcess]) -> None:
    """Start all of them, and return when they accept requests."""
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.await_ready()


def wait_until(
    condition: Callable[[], bool],
    timeout_s: float,
    explain: Callable[[], str] = str,
    *,
    still: Callable[[], bool] = lambda: True,
) -> None:
    """Wait until `condition` holds; fail with the text of `explain` after `timeout_s`, or when `still` becomes
    false."""
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        assert still(), f"it ended:\n{explain()[-3_000:]}"
        assert time.monotonic() < give_up_at, f"not within {timeout_s} s:\n{explain()[-3_000:]}"
        time.sleep(POLL_S)


def run_tidelog(
    arguments: Sequence[str],
    *,
    broker: str | None = None,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line once, to its end, in a fork (`forked_tidelog`)."""
    variables = {**os.environ, **({"TIDELOG_BROKER": broker} if broker else {}), **(environment or {})}
    return run_forked(arguments, stdin, variables, timeout_s)
