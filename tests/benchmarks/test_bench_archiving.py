"""The load of the archiving rows does what they say that it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.loads.archiving import SlowLife, Speed
from benchmarks.processes import run_module

from tidelog.services.demo.events import EventStream


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    """5,000 events, a line each."""
    path = tmp_path / "events.lines"
    values = [value for chunk in EventStream(7).chunks(5_000) for value in chunk.values.to_pylist() if value]
    path.write_bytes(b"\n".join(values) + b"\n")
    return path


def test_archiving_is_timed_beside_pyarrow_and_what_is_stored_is_counted(payload: Path) -> None:
    load = ("--payload", payload, "--records", 30_000, "--rounds", 2)
    found = Speed.from_output(run_module("benchmarks.loads.archiving", *load))
    lines = [line for line in payload.read_bytes().splitlines() for _ in range(6)]
    assert found.raw_bytes == sum(map(len, lines))
    assert len(found.archive_cpu_s) == len(found.pyarrow_cpu_s) == 2
    assert min(*found.archive_cpu_s, *found.pyarrow_cpu_s) > 0
    assert 0 < found.merged_stored_bytes <= found.archived_stored_bytes < found.raw_bytes / 2


def test_a_slow_life_is_counted_pass_by_pass(payload: Path) -> None:
    load = ("--payload", payload, "--records", 4_000, "--slow-life")
    found = SlowLife.from_output(run_module("benchmarks.loads.archiving", *load))
    assert found.passes == 40
    assert 1 < found.written_bytes / found.raw_bytes <= 3
    assert 0 < found.small_segments < 40
    assert found.final_segments == 0
