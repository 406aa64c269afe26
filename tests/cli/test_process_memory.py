"""How a broker prepares Arrow before it is loaded. Each case runs in its own process, because the effect is per
process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.services.runtime.process_memory import choose_pool

FIRST_VALUES = "import pyarrow as pa; pa.array([1]); print(pa.default_memory_pool().backend_name)"
LEAN = "from tidelog.services.runtime.process_memory import bound_memory; bound_memory(); "


@pytest.fixture
def noisy_pandas(tmp_path: Path) -> Path:
    """A folder with a pandas that reports when it is loaded, and is too old to be used."""
    (tmp_path / "pandas.py").write_text("print('pandas loaded')\n__version__ = '1.0'\n")
    return tmp_path


def output_of(program: str, first_on_path: Path, **variables: str) -> list[str]:
    path = os.pathsep.join([str(first_on_path), *filter(None, sys.path)])
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")


def test_pyarrow_alone_loads_pandas(noisy_pandas: Path) -> None:
    assert "pandas loaded" in output_of(FIRST_VALUES, noisy_pandas)


def test_a_broker_loads_no_pandas_yet_others_may(noisy_pandas: Path) -> None:
    assert "pandas loaded" not in output_of(LEAN + FIRST_VALUES, noisy_pandas)
    assert "pandas loaded" in output_of(LEAN + "import pandas", noisy_pandas)


def test_a_broker_takes_memory_from_jemalloc_by_default(tmp_path: Path) -> None:
    assert "jemalloc" in output_of(LEAN + FIRST_VALUES, tmp_path)
    assert "system" in output_of(LEAN + FIRST_VALUES, tmp_path, ARROW_DEFAULT_MEMORY_POOL="system")


def test_platforms_without_jemalloc_keep_arrow_s_own() -> None:
    environ: dict[str, str] = {}
    choose_pool(environ, "win32")
    assert environ == {}
