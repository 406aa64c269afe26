"""`python -m benchmarks --quick` runs a row against a real broker and writes the result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(folder: Path, *arguments: str, keep_cache: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks. With `keep_cache` they use the programs that this machine has; without, none, and new
    payloads."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if not keep_cache:
        env["XDG_CACHE_HOME"] = str(folder / "cache")
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=folder, env=env)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory row reads /proc: run it on Linux")
def test_a_quick_run_of_one_family(tmp_path: Path) -> None:
    done = bench(tmp_path, "--quick", "memory")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "artifacts" / "bench-quick.json").read_text())
    assert [row["name"] for row in report["rows"]] == ["memory-idle", "memory-full"]
    idle, full = (row["measured"] for row in report["rows"])
    assert 20 < idle < full < 5000
    assert "peak memory at full load" in done.stdout
    assert (tmp_path / "artifacts" / "bench-quick.png").exists()


def test_an_unknown_family_is_refused_with_the_known(tmp_path: Path) -> None:
    done = bench(tmp_path, "speed")
    assert done.returncode == 2
    assert "no family: speed; there are produce, json" in done.stderr
