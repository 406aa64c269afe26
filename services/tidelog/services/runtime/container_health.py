"""The health check of the container image: ``python -m tidelog.services.runtime.container_health``.

One check serves all roles of the image. The role is in the command line of process 1:

    tidelog serve                          healthy while ``/healthz`` answers on the broker's port
    tidelog compactor --alive-file FILE    healthy if FILE was renewed within `ALIVE_S_MAX`
    anything else                          healthy while it runs; the container engine sees that by itself

Exit code 0 means healthy. With exit code 1 the reason is printed. Only the standard library is imported, because this
runs every few seconds.
"""

from __future__ import annotations

import argparse
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
    """The main process does not work. The text has the evidence."""


def check(command: Sequence[str], variables: Mapping[str, str], now_s: float) -> None:
    """Check the process that was started by `command` with `variables`. Raises `Unhealthy`."""
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--port", default=variables.get("TIDELOG_PORT", ""))
    flags.add_argument("--alive-file")
    given, _ = flags.parse_known_args(command)
    if "serve" in command:
        # Kubernetes may have set TIDELOG_PORT to the URL of a Service (`settings_sources`)
        _check_answer(int(given.port) if given.port.isdigit() else DEFAULT_PORT)
    elif "compactor" in command and given.alive_file:
        _check_age(Path(given.alive_file), now_s)


def main() -> int:
    """Run the check and return its exit code."""
    command = MAIN_PROCESS.read_bytes().decode().split("\0")
    try:
        check(command, os.environ, time.time())  # noqa: TID251  # file times come from the same clock
    except Unhealthy as unhealthy:
        print(unhealthy)  # noqa: T201  # container engines keep the output of a health check
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


if __name__ == "__main__":
    sys.exit(main())
