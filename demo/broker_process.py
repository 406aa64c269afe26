"""The broker of the demo: `tidelog serve` in a separate process, so that kill -9 is real."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tidelog.client import Admin
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Clock, pause

START_SECONDS = 30.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.05
LOG_TAIL_BYTES = 2000


class BrokerProcess:
    """Starts on a free port, and after `kill` on the same port again. Its data stays in `folder`."""

    def __init__(self, folder: Path, settings: Mapping[str, object], clock: Clock) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "broker.log"
        self._config = folder / "tidelog.toml"
        self._config.write_text("".join(f'"{name}" = {_toml(value)}\n' for name, value in settings.items()))
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def command(self) -> list[str]:
        """The command with which a user continues with this broker's data."""
        return ["tidelog", "serve", "--config", str(self._config)]

    def start(self) -> float:
        """Start it; return the seconds until it was ready. Raises `Unavailable` with the end of its log if it fails."""
        began = self._clock.monotonic()
        program = "import sys; from tidelog.services.cli.main import main; sys.exit(main())"
        arguments = ["serve", "--config", str(self._config), "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to the demo, which then stops the broker
            )
        while not self.ready():
            if self._process.poll() is not None:
                raise Unavailable(f"the broker ended while it started:\n{self._tail()}")
            if self._clock.monotonic() - began > START_SECONDS:
                raise Unavailable(f"the broker was not ready within {START_SECONDS:.0f} s:\n{self._tail()}")
            pause(POLL_SECONDS)
        return self._clock.monotonic() - began

    def ready(self) -> bool:
        with Admin(self.url) as admin:
            return admin.health().ready

    def kill(self) -> None:
        """kill -9: nothing is flushed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it gracefully. Does nothing if it is not running."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def _tail(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


def free_port() -> int:
    """A port of 127.0.0.1 that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
