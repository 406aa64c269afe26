"""Child processes that never outlive the benchmark. This module starts each of them and stops it by its pid.

Each child has its own session, so Ctrl-C reaches only this program, which then stops the children in order.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil

T = TypeVar("T")
START_SECONDS = 60.0
STOP_SECONDS = 20.0
LOAD_SECONDS = 600.0


class Failed(Exception):
    """A child failed or did not start. The message holds the end of its output."""


class Child:
    """One running process with its output in a file."""

    def __init__(self, name: str, argv: Sequence[object], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """User and system CPU time so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready` holds. Raises `Failed` if the process ends first or needs more than `START_SECONDS`."""
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if self._process.poll() is not None:
                raise Failed(f"{self.name} ended with {self._process.returncode}:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} did not come up in {START_SECONDS:.0f} s:\n{tail(self.log)}")
            time.sleep(0.05)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the process by SIGSTOP, so that it takes no CPU from the side that is measured."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def alone(active: Child, idle: Child, load: Callable[[], T]) -> tuple[T, float]:
    """Run `load` with `idle` paused. Return its result and the CPU seconds that `active` took."""
    with idle.paused():
        before_s = active.cpu_seconds()
        found = load()
        return found, active.cpu_seconds() - before_s


class Children:
    """All processes of a run. Leaving the context stops them in reverse order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Child] = []
        self._settings: dict[str, None] = {}

    @property
    def settings(self) -> Sequence[str]:
        """The lines from `note_settings`, each once, in their order."""
        return tuple(self._settings)

    def note_settings(self, server: str, settings: Mapping[str, object]) -> None:
        """Remember which settings of a server are not its defaults, for the report."""
        given = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
        self._settings[f"{server}: {given or 'defaults'}"] = None

    def start(self, name: str, argv: Sequence[object], env: Mapping[str, str] | None = None) -> Child:
        child = Child(name, argv, self._folder / f"{name}.log", env)
        self._running.append(child)
        return child

    def start_module(self, name: str, module: str, *arguments: object) -> Child:
        """Start a load program that runs until it is stopped."""
        return self.start(name, [sys.executable, "-m", module, *arguments])

    def stop(self, child: Child) -> None:
        child.stop()
        self._running.remove(child)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._running:
            self._running.pop().stop()


def run(argv: Sequence[object], env: Mapping[str, str] | None = None, seconds: float = LOAD_SECONDS) -> str:
    """Run a program to its end and return its standard output. Kills it after `seconds`."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(map(str, argv[:4]))} ... took more than {seconds:g} s") from error
    if done.returncode != 0:
        raise Failed(
            f"{' '.join(map(str, argv[:4]))} ... ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    return done.stdout


def run_module(
    module: str, *arguments: object, env: Mapping[str, str] | None = None, seconds_max: float = LOAD_SECONDS
) -> str:
    """Run a load program in its own process; return its output."""
    return run([sys.executable, "-m", module, *map(str, arguments)], env, seconds_max)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tail(log: Path, characters: int = 2000) -> str:
    return log.read_text(errors="replace")[-characters:] if log.exists() else ""
