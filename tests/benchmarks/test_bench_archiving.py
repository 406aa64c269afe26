"""The load program of the archiving rows does what the rows say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.loads.archiving import LocalSpeed, SlowLife, Speed
from benchmarks.processes import run_module
from benchmarks.rows.archiving_pace import Sample, rate
from demo.events import EventStream
from tests.benchmarks.test_bench_quick import bench
from tests.components.required import require_component


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    """5,000 events, one per line."""
    path = tmp_path / "events.lines"
    values = [value for chunk in EventStream(7).chunks(5_000) for value in chunk.values.to_pylist() if value]
    path.write_bytes(b"\n".join(values) + b"\n")
    return path


def test_archiving_is_timed_beside_pyarrow_and_what_is_stored_is_counted(payload: Path) -> None:
    load = ("--payload", payload, "--records", 30_000, "--rounds", 2)
    found = Speed.from_output(run_module("benchmarks.loads.archiving", *load))
    lines = [line for line in payload.read_bytes().splitlines() for _ in range(6)]
    assert found.raw_bytes == pytest.approx(sum(map(len, lines)), rel=0.02)  # copied row groups count their encoding
    assert found.merge_cpu_s > 0.01
    assert len(found.archive_cpu_s) == len(found.pyarrow_cpu_s) == 2
    assert min(*found.archive_cpu_s, *found.pyarrow_cpu_s) > 0
    assert 0 < found.merged_stored_bytes <= found.archived_stored_bytes < found.raw_bytes / 2


def test_archiving_into_a_local_directory_counts_what_each_round_takes(payload: Path, tmp_path: Path) -> None:
    load = ("--payload", payload, "--records", 30_000, "--rounds", 2, "--local", tmp_path / "bucket")
    found = LocalSpeed.from_output(run_module("benchmarks.loads.archiving", *load))
    lines = [line for line in payload.read_bytes().splitlines() for _ in range(6)]
    assert found.raw_bytes == pytest.approx(sum(map(len, lines)), rel=0.02)
    assert len(found.archive_cpu_s) == 2
    assert min(found.archive_cpu_s) > 0
    assert list((tmp_path / "bucket" / "topics").rglob("*.parquet")), "the last round's segments are there"


def test_a_slow_life_is_counted_pass_by_pass(payload: Path) -> None:
    load = ("--payload", payload, "--records", 4_000, "--slow-life")
    found = SlowLife.from_output(run_module("benchmarks.loads.archiving", *load))
    assert found.passes == 40
    assert 1 < found.written_bytes / found.raw_bytes <= 3
    assert 0 < found.small_segments < 40
    assert found.final_segments == 0


@pytest.mark.soak
def test_a_quick_run_of_archiving_pace(tmp_path: Path) -> None:
    require_component("minio")
    done = bench(tmp_path, "--quick", "archiving-pace", keep_cache=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "artifacts" / "bench-quick.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["archiving-pace-local", "archiving-pace-minio"]
    for row in rows:
        archived, written = row["sides"]
        assert row["measured"] == archived["samples"][0] / written["samples"][0]
        assert written["samples"][0] > 0


def test_a_rate_is_counted_between_the_first_sample_and_the_last() -> None:
    samples = [Sample(10.0, 100, 50), Sample(11.0, 120, 50), Sample(14.0, 180, 170)]
    assert rate(samples, lambda sample: sample.written) == 20
    assert rate(samples, lambda sample: sample.archived) == 30
