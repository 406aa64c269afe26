"""Runs `sink_job` and kills its parts: the driver, an executor's JVM, a Python worker with a task or the commit.

The parts of a job are the processes of its own session, so nothing else is ever killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Victim(Enum):
    """`value`: what the command line of such a process has."""

    DRIVER = ""
    EXECUTOR = "CoarseGrainedExecutorBackend"
    WORKER = "pyspark.daemon"


@dataclass(frozen=True)
class JobPlan:
    """The arguments of `sink_job`."""

    broker: str
    topic: str
    checkpoint: Path
    rows_per_batch: int
    master: str


class KilledJob:
    """The job of `plan`, started anew after each end."""

    def __init__(self, plan: JobPlan, log: Path) -> None:
        self._plan = plan
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.starts += 1
        plan = self._plan
        given = [plan.broker, plan.topic, plan.checkpoint, plan.rows_per_batch, plan.master]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.sink_job", *map(str, given)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )

    def kill(self, victim: Victim, place: float) -> bool:
        """Kill -9 one process of that kind, the one at `place` (0 to 1) of them; of the driver, the whole job. False
        if there is none now."""
        if not self.running():
            return False
        if victim is Victim.DRIVER:
            self.end()
            return True
        found = [process for process, command in self._processes() if victim.value in command]
        if not found:
            return False
        try:
            os.kill(found[int(place * len(found))], signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        """Kill every process of the job."""
        if self._process is None:
            return
        for process, _ in [*self._processes()]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    def log_tail(self) -> str:
        return self._log.read_bytes()[-3_000:].decode(errors="replace") if self._log.exists() else ""

    def _processes(self) -> Iterator[tuple[int, str]]:
        assert self._process is not None
        session = self._process.pid
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            try:
                if os.getsid(int(folder.name)) == session:
                    yield int(folder.name), (folder / "cmdline").read_bytes().decode(errors="replace")
            except (ProcessLookupError, FileNotFoundError):
                continue
