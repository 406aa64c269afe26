"""Damaged bodies of every kind are accepted or refused, without a crash and without much memory (inv. 10)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PEAK_BYTES_MAX = 64 << 20


def fuzz(seed: int, bodies: int) -> dict[str, Any]:
    """The output of a child process for `bodies` damaged bodies; a failure names the seed."""
    command = [sys.executable, "-m", "tests.http.body_fuzz", str(seed), str(bodies)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"seed {seed} ended with {run.returncode}: {run.stdout}{run.stderr}"
    said: dict[str, Any] = json.loads(run.stdout)
    return said


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_bodies_are_taken_or_refused(seed: int) -> None:
    said = fuzz(seed, 6_000)
    assert {"arrow", "arrow lz4", "arrow zstd", "json", "ndjson", "text"} == said["taken"].keys()
    assert {"arrow", "arrow lz4", "arrow zstd", "json", "ndjson"} <= said["refused"].keys()
    assert said["peak_bytes"] < PEAK_BYTES_MAX


@pytest.mark.soak
def test_damaged_bodies_are_taken_or_refused_for_long() -> None:
    ends = time.monotonic() + 60 * float(os.environ.get("TIDELOG_SOAK_MINUTES", "10")) / 4
    seed = 1_000
    while time.monotonic() < ends:
        fuzz(seed, 50_000)
        seed += 1
