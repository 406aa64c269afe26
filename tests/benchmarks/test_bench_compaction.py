"""The rows of log compaction run, and the right records remain."""

import json
import sys
from pathlib import Path

import pytest
from tests.benchmarks.test_bench_quick import bench


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sizes are those of Linux: run it there")
def test_a_quick_run_of_compaction(tmp_path: Path) -> None:
    done = bench(tmp_path, "--quick", "compaction", keep_cache=True)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads((tmp_path / "artifacts" / "bench-quick.json").read_text())["rows"]}
    assert list(rows) == ["compaction", "compaction-memory"]
    assert rows["compaction"]["measured"] > 0
    assert 20 < rows["compaction-memory"]["measured"] < 1024
    [fact] = rows["compaction"]["sides"][0]["facts"]
    kept = int(fact.rsplit(", ", 1)[1].split()[0].replace(",", ""))
    assert 49_000 < kept <= 50_000, "of 500,000 records of 50,000 keys, drawn at random"
