"""The harness's side of the load process; see `load/__main__.py` for its commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos.load.workload import Workload

STOP_S_MAX = 300.0


@dataclass(frozen=True)
class LoadStatus:
    """`acknowledged_at`: when the last acknowledged append to ``topic/partition`` began. `unexpected`: answers that no
    fault excuses."""

    acknowledged_at: Mapping[str, float]
    counts: Mapping[str, int]
    unexpected: Sequence[str]


class LoadProcess:
    """Runs from `__enter__` to `stop`."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        self.history = folder / "history.jsonl"
        self._workload = workload
        self._log = folder / "load.log"

    def status(self) -> LoadStatus:
        return LoadStatus(**json.loads(self._asked("status")))

    def stop(self) -> LoadStatus:
        """End the load, read everything, and wait for the process."""
        status = LoadStatus(**json.loads(self._asked("stop")))
        assert self._process.wait(STOP_S_MAX) == 0, self._log.read_text()[-3_000:]
        return status

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.chaos.load", self._workload.text(), str(self.history)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        try:
            self._answered("ready")
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(BrokenPipeError):  # a command that the process did not live to read
                    pipe.close()

    def _asked(self, command: str) -> str:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # without an answer, `_answered` says why the process ended
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        return self._answered()

    def _answered(self, wanted: str = "") -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line.strip(), f"the load ended: {self._log.read_text()[-3_000:]}"
        assert not wanted or line.strip() == wanted, line
        return line
