"""Runs one service as a process: starts, stops, kills and pauses it, and restarts it on the same port.

Each process has a session of its own, so Ctrl-C reaches only the parent, which then stops the processes in order.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.cluster.programs import find_program
from infra.cluster.topology import Program, Service
from infra.components import component

POLL_S = 0.05
PROBE_S_MAX = 2.0
STOP_S_MAX = 30.0
TIDELOG = (sys.executable, "-c", "import sys; from tidelog.services.cli.main import main; sys.exit(main())")
FOREIGN = ("AWS_", "TIDELOG_", "ETCD_", "MINIO_")
"""Variables of the caller that are not passed to a service: the topology is its whole configuration."""


class Failed(Exception):
    """A service did not start or stop; the message contains the end of its log."""


class ServiceProcess:
    """`service`, which may be started many times; all runs write to one log."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        self.log_path = folder / f"{service.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.service.name} was never started"
        return self._process.pid

    def start(self) -> None:
        """Start without waiting until it is ready."""
        assert not self.running, f"{self.service.name} runs already"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*_command(self.service.program), *self.service.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment_with(self.service.environment),
                start_new_session=True,
            )

    def healthy(self) -> bool:
        """Whether it accepts requests now."""
        address = self.service.address
        return answers(address.host, address.port, self.service.health_path)

    def await_healthy(self, timeout_s: float) -> None:
        """Wait until it is ready. Raises `Failed` if it ends, or is not ready in time."""
        give_up_at = time.monotonic() + timeout_s
        while not self.healthy():
            if not self.running:
                raise Failed(f"{self.service.name} ended by itself:\n{self.log_tail()}")
            if time.monotonic() > give_up_at:
                raise Failed(f"{self.service.name} was not ready within {timeout_s:g} s:\n{self.log_tail()}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)
        self._waited(STOP_S_MAX)

    def pause(self) -> None:
        """SIGSTOP: the process is suspended; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self._signal(signal.SIGTERM)

    def stop(self, timeout_s: float = STOP_S_MAX) -> int:
        """Send SIGTERM and return the exit code; does nothing if it has ended. If it takes longer than `timeout_s`,
        kill it and raise `Failed`."""
        if self._process is None:
            return 0
        if self.running:
            self.resume()
            self.terminate()
        try:
            return self._waited(timeout_s)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise Failed(f"{self.service.name} did not stop within {timeout_s:g} s:\n{self.log_tail()}") from error

    def log_tail(self, characters: int = 3_000) -> str:
        return self.log_path.read_text(errors="replace")[-characters:] if self.log_path.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, f"{self.service.name} was never started"
        self._process.send_signal(number)

    def _waited(self, timeout_s: float) -> int:
        assert self._process is not None, f"{self.service.name} was never started"
        return self._process.wait(timeout_s)


def environment_with(given: Mapping[str, str]) -> Mapping[str, str]:
    """The caller's environment without variables that configure a service, plus `given`."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}, **given}


def answers(host: str, port: int, path: str) -> bool:
    """Whether a GET is answered with 200."""
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_S_MAX)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _command(program: Program) -> Sequence[str]:
    if program is Program.BROKER:
        return TIDELOG
    place = find_program(program)
    if place is None:
        raise Failed(f"{program.value} is missing on this machine: {component(program.value).how}")
    return (str(place),)
