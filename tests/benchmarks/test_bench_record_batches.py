"""The rows of record batches run in the benchmark's own process, with a twentieth of the records."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.test_bench_quick import bench


def test_a_quick_run_of_record_batches(tmp_path: Path) -> None:
    done = bench(tmp_path, "--quick", "record-batches", keep_cache=True)
    assert done.returncode == 0, done.stderr
    decode, encode = json.loads((tmp_path / "artifacts" / "bench-quick.json").read_text())["rows"]
    assert [row["name"] for row in (decode, encode)] == ["record-batches-decode", "record-batches-encode"]
    assert 0 < decode["measured"] < 3
    assert 0 < encode["measured"] < 3
    assert "a batch of one record" in decode["sides"][0]["facts"][-1]
