"""A real component that tests or benchmarks use, and how to fetch or build it.

Components are kept in the user's cache (``$XDG_CACHE_HOME/tidelog``, else ``~/.cache/tidelog``). One rename puts each
one there, so it is never incomplete, and one process at a time makes it. Standard library only: this module runs
before anything is installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECONDS_BETWEEN_LINES = 15.0


class CannotMake(Exception):
    """The component cannot be made on this machine; the message says why."""


@dataclass(frozen=True)
class Component:
    """`find` returns its path, or None if it is missing; `make` fetches or builds it, or raises `CannotMake`.

    `purpose`: the tests and commands that need it, and that are skipped without it. `how`: how a person gets it.
    Making it needs `programs` on ``PATH``, takes about `seconds` and downloads about `megabytes`. A component
    `on_demand` is made only when it is named.
    """

    name: str
    purpose: str
    how: str
    find: Callable[[], Path | None]
    make: Callable[[], None]
    seconds: int
    megabytes: int
    programs: tuple[str, ...] = ()
    on_demand: bool = False


def cache_folder() -> Path:
    """The folder of all components. It may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog"


def tools_folder() -> Path:
    """The folder of single programs."""
    return cache_folder() / "tools"


@contextmanager
def only_one_process(name: str) -> Iterator[None]:
    """Hold the lock for making `name`; waits while another process holds it."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: another process is making it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """A temporary folder on the file system of the final place: make the component there, then rename it."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_showing_progress(name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a long command and show the elapsed time. Raises `CannotMake` with the end of its output if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=output, stderr=output)
        started_s = time.monotonic()
        try:
            while process.poll() is None:
                _show_elapsed(name, time.monotonic() - started_s)
                _wait(process)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        _end_of_progress()
        if process.returncode != 0:
            output.seek(0)
            raise CannotMake(f"{command[0]} failed: {' '.join(output.read().split()[-60:])}")


def say(line: str) -> None:
    """Print one line at once."""
    print(line, flush=True)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=1.0 if sys.stdout.isatty() else SECONDS_BETWEEN_LINES)
    except subprocess.TimeoutExpired:
        return


def _show_elapsed(name: str, elapsed_s: float) -> None:
    line = f"{name}: running for {elapsed_s:3.0f} s"
    print(f"\r{line}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)


def _end_of_progress() -> None:
    if sys.stdout.isatty():
        print()
