"""Health of the container's main process, by its role: ``python -m tidelog.services.runtime.container_health``.

The image has one health check for all roles. The role stands in the command line of process 1:

    tidelog serve                          healthy while ``/healthz`` answers on the broker's port
    tidelog compactor --alive-file FILE    healthy while FILE was renewed within `ALIVE_S_MAX`
    anything else                          healthy while it runs, which the container engine sees by itself

Exit code 0 is healthy, 1 is not, and the reason is printed. Only the standard library is imported: this runs every few
seconds.
"""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

MAIN_PROCESS = Path("/proc/1/cmdline")
DEFAULT_PORT = 8080
ANSWER_S_MAX = 2.0
ALIVE_S_MAX = 60.0


class Unhealthy(Exception):
    """The main process does not do its work; the text says how that is known."""


def check(command: Sequence[str], variables: Mapping[str, str], now_s: float) -> None:
    """Look at the process that `command` started, under `variables`. Raises `Unhealthy`."""
    if "serve" in command:
        _check_answer(_port(command, variables))
    elif "compactor" in command and (file := _option(command, "--alive-file")):
        _check_age(Path(file), now_s)


def main() -> int:
    """The command; its exit code."""
    command = MAIN_PROCESS.read_bytes().decode().split("\0")
    try:
        check(command, os.environ, time.time())  # noqa: TID251  # compared with a file's time, which the system's clock gave
    except Unhealthy as unhealthy:
        print(unhealthy)  # noqa: T201  # engines keep what a health check prints
        return 1
    return 0


def _check_answer(port: int) -> None:
    url = f"http://127.0.0.1:{port}/healthz"
    try:
        urllib.request.urlopen(url, timeout=ANSWER_S_MAX).close()
    except OSError as error:
        raise Unhealthy(f"{url}: {error}") from error


def _check_age(file: Path, now_s: float) -> None:
    try:
        age_s = now_s - file.stat().st_mtime
    except OSError as error:
        raise Unhealthy(f"{file}: {error.strerror}") from error
    if age_s > ALIVE_S_MAX:
        raise Unhealthy(f"{file} was renewed {age_s:.0f} s ago: the compactor hangs")


def _port(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """The flag's, else the variable's, unless Kubernetes made that one of a Service (`settings_sources`)."""
    told = _option(command, "--port") or variables.get("TIDELOG_PORT", "")
    return int(told) if told.isdigit() else DEFAULT_PORT


def _option(command: Sequence[str], name: str) -> str:
    """The value of ``--name VALUE`` or ``--name=VALUE``; empty if it was not given."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


if __name__ == "__main__":
    sys.exit(main())
